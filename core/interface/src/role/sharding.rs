//! Sharding strategies: units, sizes and a world -> placements and the schedule of a step.

use crate::Result;
use crate::schedule::{Schedule, ShardingRequest};

/// A sharding strategy.
pub trait Sharding: Send + Sync {
    /// The placement of every byte and the order of a step.
    ///
    /// # Errors
    /// `INVALID` where the strategy cannot serve the request: the message says what would.
    fn schedule(&self, request: &ShardingRequest) -> Result<Schedule>;
}
