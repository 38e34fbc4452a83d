//! A swap that was asked for and not made.

use espalier_system::failure::{ExitClass, Failure};

/// A running job goes on as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{asked} is refused, the run goes on as it was: {reason}")]
pub struct SwapRefused {
    /// `quantizer=hqq`.
    pub asked: String,
    /// The run's own words.
    pub reason: String,
    /// The code of the failure that kept the job from it.
    pub exit_code: u8,
    /// What the user can do.
    pub next_step: String,
}

impl Failure for SwapRefused {
    fn exit_class(&self) -> ExitClass {
        ExitClass::of_code(self.exit_code)
    }

    fn next_step(&self) -> String {
        self.next_step.clone()
    }
}
