//! A program -> the bytes that its kernels read and write besides multiplying, for the time that
//! they take.
//!
//! Matrix products are counted by their operations (`flops.rs`). The rest is bound by memory
//! bandwidth, on a device whose caches cannot hold a micro-batch. It counts a kernel's operands,
//! and weights, which every product reads, decodes where they are packed, and copies to a layout of
//! its own.

use espalier_compile::params::Dtypes;
use espalier_compile::program::{Program, Step, UnitProgram};
use espalier_interface::graph::Dim;
use espalier_interface::model::UnitKind;
use espalier_interface::{DType, Operand, WeightLayout};

use super::KernelRates;
use crate::shard_layout::ShardLayout;

/// Bytes that a pass of a unit reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of values per token.
    pub per_token: u64,
    /// Bytes of dense weights and gradients per launch, for any number of tokens.
    pub per_launch: u64,
    /// Bytes of packed weights, and of what they are decoded to, per launch.
    pub decoded_per_launch: u64,
    /// Most tokens of a launch.
    pub max_tokens: u64,
}

impl Traffic {
    /// The bytes of each unit's forward and backward action. A head's forward action includes its
    /// backward pass.
    pub fn of_units(program: &Program) -> Vec<[Self; 2]> {
        let of_unit = |unit: &UnitProgram| {
            let [forward, backward] = [&unit.forward, &unit.backward].map(|steps| {
                let mut traffic = Traffic {
                    max_tokens: unit.max_tokens.max(1),
                    ..Traffic::default()
                };
                steps.iter().for_each(|step| traffic.add(step));
                traffic
            });
            match unit.kind {
                UnitKind::Head => [forward.and(backward), Traffic::default()],
                _ => [forward, backward],
            }
        };
        program.units.iter().map(of_unit).collect()
    }

    /// Seconds for `tokens` tokens.
    pub fn secs(&self, tokens: f64, rates: &KernelRates) -> f64 {
        let launches = match self.max_tokens {
            0 => 0.0,
            most => (tokens / most as f64).ceil(),
        };
        let elementwise =
            self.per_token as f64 * tokens + self.decoded_per_launch as f64 * launches;
        elementwise / rates.elementwise + self.per_launch as f64 * launches / rates.memory
    }

    fn add(&mut self, step: &Step) {
        let request = &step.request;
        let inputs = request.inputs.iter().map(|operand| (operand, 1));
        // An output whose size does not depend on the tokens is a gradient that is added to: it is
        // read and written.
        let outputs = request.outputs.iter().map(|operand| (operand, 2));
        for (operand, times) in inputs.chain(outputs) {
            match bytes(operand) {
                (bytes, Extent::Tokens) => self.per_token += bytes,
                (bytes, Extent::Fixed) => self.per_launch += times * bytes,
            }
        }
        if !request.op.starts_with("linear") {
            return;
        }
        for param in &request.params {
            let elements: u64 = param.shape.iter().product();
            // The copy of the weight in the product's layout is written once and read once.
            let laid_out = 2 * elements * request.inputs[0].dtype.bytes();
            match &param.layout {
                WeightLayout::Dense(dtype) => {
                    self.per_launch += elements * dtype.bytes() + laid_out;
                }
                WeightLayout::Packed(format) => {
                    self.decoded_per_launch += format.bytes() + laid_out;
                }
            }
        }
    }

    fn and(self, other: Self) -> Self {
        Traffic {
            per_token: self.per_token + other.per_token,
            per_launch: self.per_launch + other.per_launch,
            decoded_per_launch: self.decoded_per_launch + other.decoded_per_launch,
            max_tokens: self.max_tokens,
        }
    }
}

/// For each unit, the bytes of the norm of its gradients, and those of its update. The update reads
/// and writes values and optimizer state, reads the gradient and sets it to zero.
pub fn of_updates(shard_layout: &ShardLayout, dtypes: Dtypes) -> Vec<[u64; 2]> {
    let [values, gradient] = [dtypes.params, dtypes.reduce].map(DType::bytes);
    let units = (0..shard_layout.runs.len()).map(|unit| shard_layout.own_elements(unit));
    let of_unit = |elements: u64| {
        let state = shard_layout.optimizer.state_bytes(elements);
        let update = 2 * (elements * (values + gradient) + state);
        [elements * gradient, update]
    };
    units.map(of_unit).collect()
}

/// Whether the size of an operand depends on the number of tokens.
enum Extent {
    Tokens,
    Fixed,
}

/// An operand's bytes; per token where its size depends on the tokens.
fn bytes(operand: &Operand) -> (u64, Extent) {
    let fixed = operand.shape.iter().map(|dim| match dim {
        Dim::Fixed(extent) => *extent,
        Dim::Tokens | Dim::Boundaries => 1,
    });
    let extent = if operand.shape.contains(&Dim::Tokens) {
        Extent::Tokens
    } else {
        Extent::Fixed
    };
    (fixed.product::<u64>() * operand.dtype.bytes(), extent)
}
