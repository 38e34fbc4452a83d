//! The errors of a config: the key, the expected and the found value, and its source.

use std::path::PathBuf;

use espalier_system::failure::{ExitClass, Failure};

use super::Origin;
use super::options::OptionError;

/// A config that cannot be used. Every variant is the user's to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A `--config` file cannot be read.
    #[error("cannot read the config file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Text that is not TOML, or not `key=value`.
    #[error("{place}: {message}")]
    Syntax {
        /// The file with line and column, the variable or the argument.
        place: String,
        /// What the parser expected.
        message: String,
    },
    /// A key that no section has.
    #[error("unknown key `{key}` in {section} ({origin}): {}", suggestion(.nearest, .known))]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The section it stood in, `[optim]`, or `the top level`.
        section: String,
        /// Where it was written.
        origin: Box<Origin>,
        /// The key most likely meant, with its section where that is another one.
        nearest: Option<String>,
        /// All keys of the section.
        known: Vec<String>,
    },
    /// A value of the wrong type or outside its range.
    #[error("`{key}` must be {expected}, found {found} ({origin})")]
    Value {
        /// The key with its section, `optim.learning_rate`.
        key: String,
        /// The type or range.
        expected: String,
        /// The value.
        found: String,
        /// Where it was written.
        origin: Box<Origin>,
    },
    /// A plugin's option that it does not take.
    #[error("{problem} ({origin})")]
    PluginOption {
        /// Where it was written.
        origin: Box<Origin>,
        /// The option, what was expected and what was found.
        problem: Box<OptionError>,
    },
    /// Two values that do not go together.
    #[error("`{key}` ({origin}) and `{other}` ({other_origin}) do not go together: {rule}")]
    Conflict {
        /// One key.
        key: String,
        /// Where it was written.
        origin: Box<Origin>,
        /// The other key.
        other: String,
        /// Where that was written.
        other_origin: Box<Origin>,
        /// The rule that they break, with both values.
        rule: String,
    },
    /// A value that this command cannot do without.
    #[error("`{key}` is not set")]
    Missing {
        /// The key with its section.
        key: String,
        /// The flag that sets it, with its argument.
        flag: String,
    },
    /// Several faults.
    #[error("{} faults: {}", .0.len(), shown(.0))]
    Several(Vec<ConfigError>),
}

impl ConfigError {
    /// All of `faults` as one error.
    ///
    /// # Errors
    /// The fault, or [`ConfigError::Several`], where there is one.
    pub fn all(mut faults: Vec<ConfigError>) -> Result<(), ConfigError> {
        match faults.len() {
            0 => Ok(()),
            1 => Err(faults.remove(0)),
            _ => Err(ConfigError::Several(faults)),
        }
    }
}

impl Failure for ConfigError {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Usage
    }

    fn next_step(&self) -> String {
        match self {
            ConfigError::Read { .. } => "check the path given to --config".into(),
            ConfigError::Syntax { .. } => "correct it as TOML: `key = value`".into(),
            ConfigError::UnknownKey { nearest, .. } => match nearest {
                Some(nearest) => format!("write `{nearest}` or remove the key"),
                None => "remove the key or write one of the known ones".into(),
            },
            ConfigError::Value { key, .. } => {
                format!("change `{key}` there, or override it with --set {key}=...")
            }
            ConfigError::PluginOption { problem, .. } => problem.next_step(),
            ConfigError::Conflict { key, other, .. } => format!("change `{key}` or `{other}`"),
            ConfigError::Missing { key, flag } => {
                format!("give {flag}, or set `{key}` in a --config file")
            }
            ConfigError::Several(_) => "correct each of them".into(),
        }
    }

    fn parts(&self) -> Vec<&(dyn Failure + 'static)> {
        match self {
            ConfigError::Several(faults) => faults.iter().map(|fault| fault as _).collect(),
            _ => Vec::new(),
        }
    }
}

fn shown(faults: &[ConfigError]) -> String {
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    faults.join("; ")
}

fn suggestion(nearest: &Option<String>, known: &[String]) -> String {
    match nearest {
        Some(nearest) => format!("the nearest known key is `{nearest}`"),
        None if known.is_empty() => "it knows none".into(),
        None => format!("the known keys are {}", known.join(", ")),
    }
}
