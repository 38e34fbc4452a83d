//! A program -> the floating-point operations of a step, from which utilization is computed.

use espalier_compile::program::{KernelCall, Program, UnitProgram};
use espalier_data::MicroBatch;
use espalier_interface::model::UnitKind;

use super::Labelled;

/// Floating-point operations of matrix products: a multiply and an add count as two. Recomputation
/// is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flops {
    /// Operations per token.
    pub per_token: u64,
    /// Operations per token of a head that may leave tokens out.
    pub per_head_token: u64,
    /// Operations per pair of a token and one that it attends to.
    pub per_pair: u64,
    /// Operations per micro-batch, for any number of tokens. A head counts as one launch.
    pub per_batch: u64,
}

impl Flops {
    /// The operations of a training step: forward and backward pass.
    pub fn of(program: &Program) -> Self {
        let mut flops = Flops::default();
        for unit in &program.units {
            let once = unit.backward.iter().skip(unit.recomputed);
            for step in unit.forward.iter().chain(once) {
                flops.add(unit, step);
            }
        }
        flops
    }

    /// The operations of each unit's forward and backward action. Recomputation is counted here. A
    /// head's forward action includes its backward pass.
    pub fn of_units(program: &Program) -> Vec<[Self; 2]> {
        let units = program.units.iter();
        let of_unit = units.map(|unit| {
            let [mut forward, mut backward] = [&unit.forward, &unit.backward].map(|steps| {
                let mut flops = Flops::default();
                steps.iter().for_each(|step| flops.add(unit, step));
                flops
            });
            if unit.kind == UnitKind::Head {
                forward.per_token += backward.per_token;
                forward.per_head_token += backward.per_head_token;
                forward.per_pair += backward.per_pair;
                forward.per_batch += backward.per_batch;
                backward = Flops::default();
            }
            [forward, backward]
        });
        of_unit.collect()
    }

    fn add(&mut self, unit: &UnitProgram, step: &KernelCall) {
        let flops = step.request.flops();
        let per_token = match unit.labelled {
            Some(_) => &mut self.per_head_token,
            None => &mut self.per_token,
        };
        *per_token += flops.per_token;
        self.per_pair += flops.per_pair;
        self.per_batch += flops.per_launch;
    }

    /// Operations for a micro-batch.
    pub fn micro_batch(&self, micro: &MicroBatch) -> u64 {
        let of_tokens = self.per_token * micro.tokens.len() as u64;
        let of_head = self.per_head_token * Labelled::count(&micro.labels) as u64;
        of_tokens + of_head + self.per_pair * pairs_of(micro) + self.per_batch
    }
}

/// Pairs of a token and one that it attends to.
pub fn pairs_of(micro: &MicroBatch) -> u64 {
    let ends = micro.cu_seqlens.windows(2);
    ends.map(|ends| causal_pairs((ends[1] - ends[0]) as u64))
        .sum()
}

/// The same for one sequence of `length` tokens with causal attention.
pub fn causal_pairs(length: u64) -> u64 {
    length * (length + 1) / 2
}
