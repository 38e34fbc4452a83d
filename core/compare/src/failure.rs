//! Failures that end a comparison, or are reported at its end.

use espalier_system::failure::{ExitClass, Failure};
use espalier_trainer::Error;

/// An arm of a comparison is invalid.
#[derive(Debug, thiserror::Error)]
#[error("arm `{arm}`: {source}")]
pub struct ArmFailure {
    /// Its name.
    pub arm: String,
    /// Its error.
    pub source: Box<Error>,
}

/// Arms of a comparison failed; the others are complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{failed} of {runs} runs failed; the first, of arm `{arm}`: {message}")]
pub struct ArmsFailed {
    /// Runs that failed.
    pub failed: usize,
    /// All runs.
    pub runs: usize,
    /// The first arm that failed.
    pub arm: String,
    /// Its error message.
    pub message: String,
}

/// A signal ended a comparison.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped by signal {signal}: {done} of {runs} runs are done")]
pub struct ComparisonStopped {
    /// The signal's number.
    pub signal: i32,
    /// Completed runs.
    pub done: usize,
    /// All runs.
    pub runs: usize,
    /// The command that resumes the comparison, where known.
    pub command: Option<String>,
}

impl ArmFailure {
    /// `error` of the arm `arm`.
    pub fn of(arm: &str, error: impl Into<Error>) -> Self {
        ArmFailure {
            arm: arm.to_owned(),
            source: Box::new(error.into()),
        }
    }
}

impl Failure for ArmFailure {
    fn exit_class(&self) -> ExitClass {
        self.source.exit_class()
    }

    fn next_step(&self) -> String {
        self.source.next_step()
    }
}

impl Failure for ArmsFailed {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Arms
    }

    fn next_step(&self) -> String {
        "see the report of the others; fix the reported cause, then continue with --resume, which tries the failed runs again"
            .to_owned()
    }
}

impl Failure for ComparisonStopped {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Signal(self.signal)
    }

    fn next_step(&self) -> String {
        match &self.command {
            Some(command) => format!("every run is saved: continue with {command}"),
            None => "every run is saved: continue with --resume".to_owned(),
        }
    }
}
