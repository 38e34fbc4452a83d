//! What the tests that cross crates share: golden files, runs without rows, and comparisons.

mod compare;
mod golden;
pub mod interval_coverage;
mod random;
mod rig;
pub mod rows;
mod team_rig;

#[cfg(feature = "embedded")]
use {
    espalier_backend_cpu as _, espalier_collective_threads as _, espalier_ddp as _,
    espalier_fsdp as _, espalier_hqq as _, espalier_llama as _, espalier_lora as _,
    espalier_mistral as _, espalier_nf4 as _, espalier_qwen2 as _, espalier_qwen3 as _,
    espalier_single as _,
};

pub use compare::relative_norm;
pub use espalier_conformance::{largest, largest_difference};
pub use golden::{Golden, golden_path, names};
pub use random::Random;
pub use rig::{Rig, micro_batch, step_of};
pub use team_rig::{Named, TeamRig};
