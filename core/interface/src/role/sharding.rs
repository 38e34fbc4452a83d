//! Sharding strategies: sizes of units and a world -> placements and the schedule of a step.

use crate::Result;
use crate::schedule::{Schedule, ShardingRequest};

/// A sharding strategy.
pub trait Sharding: Send + Sync {
    /// The placement of every unit and the order of a step.
    ///
    /// # Errors
    /// `INVALID` where the strategy cannot serve the request; the message says what it could serve.
    fn schedule(&self, request: &ShardingRequest) -> Result<Schedule>;
}
