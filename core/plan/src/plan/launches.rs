//! A program and the work of a micro-batch -> its kernel launches by op, with their operations and
//! bytes.

use std::collections::BTreeMap;
use std::fmt;

use espalier_compile::program::{KernelCall, Program, UnitProgram};
use espalier_interface::model::UnitKind;
use espalier_interface::op::{OpFlops, OpTraffic};
use serde::Serialize;

use super::Work;

/// Kernel launches, with what they compute and move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LaunchCost {
    /// Their number.
    pub launches: u64,
    /// Floating-point operations of matrix products.
    pub flops: f64,
    /// Bytes of operands that they read and write.
    pub bytes: f64,
}

/// The launches of a micro-batch: its forward and its backward pass, recomputation included.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Launches {
    /// All of them.
    pub micro_batch: LaunchCost,
    /// Those of the layer with the most launches.
    pub layer: LaunchCost,
    /// By op.
    pub ops: BTreeMap<String, LaunchCost>,
}

impl Launches {
    /// The launches of `program` for a micro-batch of `work`.
    pub fn of(program: &Program, work: &Work) -> Self {
        let mut found = Launches::default();
        for unit in &program.units {
            let mut of_unit = LaunchCost::default();
            for call in unit.forward.iter().chain(&unit.backward) {
                let cost = LaunchCost::of(call, unit, work);
                let op = found.ops.entry(call.request.op.clone()).or_default();
                *op = op.and(cost);
                of_unit = of_unit.and(cost);
            }
            found.micro_batch = found.micro_batch.and(of_unit);
            if unit.kind == UnitKind::Layer && of_unit.launches > found.layer.launches {
                found.layer = of_unit;
            }
        }
        found
    }
}

impl LaunchCost {
    /// A call of a unit, which is launched once for each window of tokens.
    fn of(call: &KernelCall, unit: &UnitProgram, work: &Work) -> Self {
        let tokens = work.tokens_of(unit);
        let windows = (tokens / unit.max_tokens.max(1) as f64).ceil().max(1.0);
        let cost = (call.request.flops(), call.request.traffic());
        let of_window = [tokens / windows, work.pairs / windows];
        let each = LaunchCost::of_launch(cost, of_window);
        LaunchCost {
            launches: windows as u64,
            flops: each.flops * windows,
            bytes: each.bytes * windows,
        }
    }

    /// One launch for so many tokens, and pairs of a token and one that it attends to.
    pub fn of_launch((flops, traffic): (OpFlops, OpTraffic), [tokens, pairs]: [f64; 2]) -> Self {
        let of_tokens = flops.per_token as f64 * tokens + flops.per_pair as f64 * pairs;
        let of_launch = traffic.per_launch + traffic.decoded_per_launch;
        LaunchCost {
            launches: 1,
            flops: of_tokens + flops.per_launch as f64,
            bytes: traffic.per_token as f64 * tokens + of_launch as f64,
        }
    }

    /// The cost of both.
    pub fn and(self, other: LaunchCost) -> Self {
        LaunchCost {
            launches: self.launches + other.launches,
            flops: self.flops + other.flops,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl fmt::Display for Launches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, cost: &LaunchCost| {
            let (flops, bytes) = (cost.flops / 1e9, cost.bytes / 1e9);
            writeln!(
                f,
                "  {name:<32} {:>8} {flops:>12.1} {bytes:>10.3}",
                cost.launches
            )
        };
        writeln!(f, "\nkernel launches of a micro-batch")?;
        writeln!(
            f,
            "  {:<32} {:>8} {:>12} {:>10}",
            "op", "launches", "GFLOP", "GB"
        )?;
        let mut ops: Vec<_> = self.ops.iter().collect();
        ops.sort_by(|(_, a), (_, b)| b.bytes.total_cmp(&a.bytes));
        for (name, cost) in ops {
            row(f, name, cost)?;
        }
        row(f, "all", &self.micro_batch)?;
        row(f, "a layer", &self.layer)
    }
}
