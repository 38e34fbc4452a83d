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
    /// Made from the weight of the param's site by
    /// [`Adapter::initialise`](crate::Adapter::initialise); for params of adapters.
    FromWeight,
}
