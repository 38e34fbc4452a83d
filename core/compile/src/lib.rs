//! Graphs -> programs: splicing adapters in, differentiation, recompute, and places in an arena.
//!
//! Nothing here knows a device, a file or a thread.

pub mod arena;
pub mod decompose;
pub mod factors;
pub mod flat_params;
pub mod fuse;
pub mod grad;
pub mod identity;
pub mod params;
pub mod program;
pub mod recompute;
pub mod splice;
