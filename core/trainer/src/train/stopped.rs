//! A run that a signal ended.

use std::path::PathBuf;

use espalier_system::failure::{ExitClass, Failure};

/// A signal ended the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped by signal {signal} after step {step}")]
pub struct Stopped {
    /// The signal's number.
    pub signal: i32,
    /// The last step that was done.
    pub step: u64,
    /// What was saved.
    pub saved: Option<PathBuf>,
}

impl Failure for Stopped {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Signal(self.signal)
    }

    fn next_step(&self) -> String {
        match &self.saved {
            Some(path) => format!(
                "go on with --resume: what was learned so far is in {}",
                path.display()
            ),
            None => "nothing was trained yet: start again with --resume".to_owned(),
        }
    }
}
