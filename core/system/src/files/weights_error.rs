//! Weights that differ from the requested ones.

use std::path::PathBuf;

use crate::failure::{ExitClass, Failure};

/// The weights do not fit the model, the adapter or the config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct WeightsError {
    /// The file or directory.
    pub path: PathBuf,
    /// What was expected and what was found.
    pub message: String,
}

impl Failure for WeightsError {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Checkpoint
    }

    fn next_step(&self) -> String {
        "check that it is complete and belongs to this model".to_owned()
    }
}
