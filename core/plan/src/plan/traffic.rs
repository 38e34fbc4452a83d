//! A program -> the bytes that its kernels read and write besides multiplying, for the time that
//! they take.
//!
//! Matrix products are counted by their operations (`flops.rs`). The rest is bound by memory
//! bandwidth, on a device whose caches cannot hold a micro-batch. Each op's definition says what a
//! launch reads and writes.

use espalier_compile::params::Dtypes;
use espalier_compile::program::{KernelCall, Program, UnitProgram};
use espalier_interface::DType;
use espalier_interface::model::UnitKind;

use super::{KernelRates, Work};
use crate::shard_layout::ShardLayout;

/// Bytes that a pass of a unit reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of values per token.
    pub per_token: u64,
    /// Bytes of dense weights and gradients per launch, for any number of tokens.
    pub per_launch: u64,
    /// Bytes of packed weights and of their decoded values, per launch.
    pub decoded_per_launch: u64,
    /// Most tokens of a launch.
    pub max_tokens: u64,
    /// Whether tokens are those of a head that may leave some out.
    pub of_head_tokens: bool,
}

impl Traffic {
    /// The bytes of each unit's forward and backward action. A head's forward action includes its
    /// backward pass.
    pub fn of_units(program: &Program) -> Vec<[Self; 2]> {
        let of_unit = |unit: &UnitProgram| {
            let [forward, backward] = [&unit.forward, &unit.backward].map(|steps| {
                let mut traffic = Traffic {
                    max_tokens: unit.max_tokens.max(1),
                    of_head_tokens: unit.labelled.is_some(),
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

    /// Seconds for a micro-batch of `work`.
    pub fn secs(&self, work: &Work, rates: &KernelRates) -> f64 {
        let tokens = if self.of_head_tokens {
            work.head_tokens
        } else {
            work.tokens
        };
        let launches = match self.max_tokens {
            0 => 0.0,
            most => (tokens / most as f64).ceil(),
        };
        self.per_token as f64 * tokens / rates.elementwise
            + self.decoded_per_launch as f64 * launches / rates.decoding
            + self.per_launch as f64 * launches / rates.memory
    }

    fn add(&mut self, step: &KernelCall) {
        let traffic = step.request.traffic();
        self.per_token += traffic.per_token;
        self.per_launch += traffic.per_launch;
        self.decoded_per_launch += traffic.decoded_per_launch;
    }

    fn and(self, other: Self) -> Self {
        Traffic {
            per_token: self.per_token + other.per_token,
            per_launch: self.per_launch + other.per_launch,
            decoded_per_launch: self.decoded_per_launch + other.decoded_per_launch,
            max_tokens: self.max_tokens,
            of_head_tokens: self.of_head_tokens,
        }
    }
}

/// For each unit, the bytes of the norm of its gradients, and those of its update. The update reads
/// and writes values and optimizer state, reads the gradient and sets it to zero.
pub fn of_updates(shard_layout: &ShardLayout, dtypes: Dtypes) -> Vec<[u64; 2]> {
    let [values, gradient] = [dtypes.params, dtypes.gradients].map(DType::bytes);
    let of_unit = |unit: usize| {
        let (elements, state) = (
            shard_layout.own_elements(unit),
            shard_layout.own_state(unit),
        );
        let update = 2 * (elements * (values + gradient) + state);
        [elements * gradient, update]
    };
    let units = 0..shard_layout.flat_params.len();
    units.map(of_unit).collect()
}
