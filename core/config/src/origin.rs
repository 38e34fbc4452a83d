//! Where a value of the config came from.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// The layer that gave a value, shown in errors and by `--dry-run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The built-in default.
    Default,
    /// A `--config` file and the line in it, counted from 1.
    File(PathBuf, usize),
    /// An environment variable.
    Environment(String),
    /// A `--set` argument's key.
    Set(String),
    /// A flag of the command line.
    Flag(String),
    /// The record of a run, which a flag names.
    Record(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path, line) => write!(f, "{}:{line}", path.display()),
            Origin::Environment(variable) => write!(f, "environment {variable}"),
            Origin::Set(key) => write!(f, "--set {key}"),
            Origin::Flag(flag) | Origin::Record(flag) => write!(f, "{flag}"),
        }
    }
}
