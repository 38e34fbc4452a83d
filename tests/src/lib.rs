//! Shared helpers of the tests across crates: golden files, runs without rows, and comparisons.

mod compare;
mod golden;
pub mod interval_coverage;
mod own_op;
mod random;
mod rig;
mod row_logits;
pub mod rows;
mod team_rig;

use espalier_shipped as _;

pub use compare::relative_norm;
pub use espalier_conformance::{largest, largest_difference};
pub use golden::{Golden, golden_bytes, golden_path, names};
pub use own_op::{OwnKernel, OwnOp, downloaded};
pub use random::Random;
pub use rig::{Rig, micro_batch, step_of};
pub use row_logits::row_logits;
pub use team_rig::{Named, TeamRig};
