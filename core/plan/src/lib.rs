//! The plan of a run before any device is opened: formats, shards, the tasks of a step, memory and
//! time.

mod base_change;
pub mod block_layout;
mod error;
pub mod initialised_sites;
pub mod packing;
pub mod param_groups;
pub mod patterns;
pub mod plan;
pub mod resident;
pub mod shard_layout;
pub mod stage_layout;
pub mod staging;
pub mod step_plan;
pub mod storage_layout;
pub mod trained_weights;

pub use error::{Error, Result};
