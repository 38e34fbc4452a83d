//! Initial values of params that no file gives: drawn, or made from a weight by an adapter.

use serde::{Deserialize, Serialize};

/// The initial values of a param. Random ones are drawn by [`crate::random`] under
/// [`crate::random::Purpose::INIT`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// All zero.
    Zeros,
    /// All one.
    Ones,
    /// All of one value.
    Constant {
        /// It.
        value: f64,
    },
    /// Uniform in `[-bound, bound)`.
    Uniform {
        /// Half the width of the interval.
        bound: f64,
    },
    /// Normal around zero.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Uniform in `[-bound, bound)` as PyTorch's generator of the CPU draws f32, whatever the run's
    /// seed; for frozen params of adapters.
    ///
    /// # Source
    /// PyTorch, `uniform_` after `Generator.manual_seed(key)`: MT19937 (Matsumoto and Nishimura
    /// 1998), seeded with the lower half of `key`; the lower 24 bits of a word for each number.
    TorchUniform {
        /// Half the width of the interval.
        bound: f64,
        /// The generator's seed.
        key: u64,
        /// Numbers that were drawn before.
        skip: u64,
    },
    /// Made from the weight of the param's site by
    /// [`Adapter::initialise`](crate::Adapter::initialise); for params of adapters.
    FromWeight,
}

impl Init {
    /// Whether the values are the same in every run: its seed and weights have no part in them.
    pub fn is_same_in_every_run(self) -> bool {
        match self {
            Init::Zeros | Init::Ones | Init::Constant { .. } | Init::TorchUniform { .. } => true,
            Init::Uniform { .. } | Init::Normal { .. } | Init::FromWeight => false,
        }
    }
}
