//! The error for a number that is not finite.

use espalier_registry::NOT_FINITE_NEXT_STEP;
use espalier_system::failure::{ExitClass, Failure};

/// A number that is not finite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {step}: {tensor} is not finite")]
pub struct NotFinite {
    /// The optimizer step, counted from 1.
    pub step: u64,
    /// The first tensor in which it was seen.
    pub tensor: String,
}

impl Failure for NotFinite {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Numbers
    }

    fn next_step(&self) -> String {
        format!(
            "{NOT_FINITE_NEXT_STEP}, with another --out: --resume would come to the same number"
        )
    }
}
