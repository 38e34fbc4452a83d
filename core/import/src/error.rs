//! Why a config cannot be taken over.

use std::error::Error;
use std::fmt;

/// Why a config cannot be taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// It is not YAML; the reader's words, with line and column.
    Yaml(String),
    /// A value is not what its key takes.
    Value {
        /// The key in the file.
        key: String,
        /// What it takes.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A key is missing.
    Missing(&'static str),
    /// It is for models that this program cannot train.
    NoCounterpart {
        /// The key in the file.
        key: String,
        /// What it asks for.
        what: &'static str,
    },
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Yaml(why) => write!(f, "it is not YAML: {why}"),
            ImportError::Value {
                key,
                expected,
                found,
            } => write!(f, "`{key}`: expected {expected}, found {found}"),
            ImportError::Missing(key) => write!(f, "expected the key `{key}`, found none"),
            ImportError::NoCounterpart { key, what } => {
                write!(
                    f,
                    "`{key}` asks for {what}, which this program does not have"
                )
            }
        }
    }
}

impl Error for ImportError {}
