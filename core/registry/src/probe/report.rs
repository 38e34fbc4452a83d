//! The output of a probing process: one JSON object per line.

use std::fmt;

use espalier_interface::{ErrorCode, PluginError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::library::{Doing, LibraryFault};

/// A line of a probing process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The next call. The last such line is the call in which it ended.
    Doing(Doing),
    /// Its findings.
    Report(Report),
}

/// The findings of a probing process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Hash of the file that it opened.
    pub sha256: String,
    /// Why the library cannot be used at all.
    pub fault: Option<LibraryFault>,
    /// Each component that it made, or could not make.
    pub components: Vec<Tried>,
}

/// A component that was made and destroyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Its name.
    pub component: String,
    /// Its error, where it returned one.
    pub failure: Option<Failure>,
}

impl Tried {
    /// Whether it could not be made because a driver or a library below it is missing or failed.
    pub(super) fn lacks_device(&self) -> bool {
        let failure = self.failure.as_ref();
        failure.is_some_and(|failure| ErrorCode(failure.code) == ErrorCode::DEVICE)
    }
}

/// An error that a component returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The call.
    pub callback: String,
    /// [`ErrorCode`].
    pub code: u32,
    /// Its message.
    pub message: String,
}

impl Failure {
    pub(crate) fn new(callback: &str, error: PluginError) -> Self {
        Failure {
            callback: callback.to_owned(),
            code: error.code.0,
            message: error.message,
        }
    }

    /// The component's error.
    pub fn error(&self) -> PluginError {
        PluginError::new(ErrorCode(self.code), self.message.clone())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed in {}: {}", self.callback, self.error())
    }
}

/// A component to be called, not only made, and its options.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// Its role, by name.
    pub role: String,
    /// Its name.
    pub component: String,
    /// Its options as the user wrote them.
    pub options: Map<String, Json>,
}
