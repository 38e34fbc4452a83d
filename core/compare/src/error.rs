//! Errors that end a comparison.

use espalier_config::ConfigError;
use espalier_registry::RegistryError;
use espalier_system::failure::UsageError;
use espalier_system::failures;
use espalier_system::files::FileError;
use espalier_system::stop::Interrupted;
use espalier_trainer::checkpoint::CheckpointError;

use crate::failure::{ArmFailure, ArmsFailed, ComparisonStopped};

failures! {
    /// A failure of a comparison.
    pub enum Error {
        /// An error that would end a training run as well.
        Trainer(espalier_trainer::Error),
        /// The arguments contradict each other, or name something that does not exist.
        Usage(UsageError),
        /// An arm is invalid.
        Arm(ArmFailure),
        /// Arms failed; the others are complete.
        ArmsFailed(ArmsFailed),
        /// A signal ended the comparison.
        Stopped(ComparisonStopped),
    }
    through Trainer {
        CheckpointError, ConfigError, FileError, Interrupted, RegistryError,
        espalier_engine::Error, espalier_plan::Error, espalier_registry::Error,
    }
}

impl Error {
    /// The same error, with the command that resumes the comparison.
    pub fn going_on(mut self, resuming: impl FnOnce() -> String) -> Self {
        if let Error::Stopped(stopped) = &mut self {
            stopped.command = Some(resuming());
        }
        self
    }
}
