//! A run that a signal ended.

use std::path::PathBuf;

use espalier_interface::ErrorCode;
use espalier_registry::PluginFailure;
use espalier_system::failure::{ExitClass, Failure};
use espalier_system::stop::StopFlag;

use crate::Error;
use crate::checkpoint::Checkpoints;

/// A signal ended the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped by signal {signal} after step {step}")]
pub struct Stopped {
    /// The signal's number.
    pub signal: i32,
    /// The last completed step.
    pub step: u64,
    /// The saved checkpoint.
    pub saved: Option<PathBuf>,
    /// The command that continues the run, where known.
    pub command: Option<String>,
}

impl Failure for Stopped {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Signal(self.signal)
    }

    fn next_step(&self) -> String {
        let command = match &self.command {
            Some(command) => format!("`{command}`"),
            None => "--resume".to_owned(),
        };
        match &self.saved {
            Some(path) => format!(
                "continue with {command}: the last checkpoint is {}",
                path.display()
            ),
            None => "nothing was trained yet: start again with --resume".to_owned(),
        }
    }
}

impl Stopped {
    /// `error`, or [`Error::Stopped`] where a plugin or the loading of weights ended because of a
    /// stop request.
    pub(super) fn explaining(error: Error, stop: &StopFlag, checkpoints: &Checkpoints) -> Error {
        let cancelled = match &error {
            Error::Interrupted(_) => true,
            Error::Plugin(PluginFailure { source, .. }) => source.code == ErrorCode::CANCELLED,
            _ => false,
        };
        let newest = || {
            checkpoints
                .steps()
                .ok()
                .and_then(|steps| steps.last().copied())
        };
        match stop.requested().filter(|_| cancelled) {
            Some(signal) => Error::Stopped(Stopped {
                signal,
                step: newest().unwrap_or(0),
                saved: newest().map(|step| checkpoints.path(step)),
                command: None,
            }),
            None => error,
        }
    }
}
