//! A refused swap.

use espalier_system::failure::{ExitClass, Failure};

/// A running job refused a swap and continues unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{asked} is refused, the run continues unchanged: {reason}")]
pub struct SwapRefused {
    /// `quantizer=hqq`.
    pub asked: String,
    /// The run's message.
    pub reason: String,
    /// The exit code of the failure.
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
