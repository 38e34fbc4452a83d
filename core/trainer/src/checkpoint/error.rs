//! Errors of resuming a run, with their exit class and next step.

use std::fmt;
use std::path::PathBuf;

use espalier_system::failure::{ExitClass, Failure};
use espalier_system::shell;

use super::difference::Difference;

/// A checkpoint that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file is missing, changed or belongs to another checkpoint.
    #[error("checkpoint {} is damaged: {file}: {problem}", .checkpoint.display())]
    Damaged {
        /// The checkpoint's directory.
        checkpoint: PathBuf,
        /// The file, by its path in the directory.
        file: String,
        /// What is wrong with it.
        problem: String,
        /// The newest older checkpoint that is intact.
        older: Option<u64>,
        /// The command that resumes from that one.
        command: Option<String>,
    },
    /// The checkpoint was saved by a run with other settings.
    #[error(
        "{} was made by another run: {}",
        .path.display(),
        listed(.differences)
    )]
    Changed {
        /// The checkpoint's directory, or the `run.json` of a finished run.
        path: PathBuf,
        /// The differences; never empty.
        differences: Vec<Difference>,
        /// What the run has trained so far, from which another run can begin.
        result: Option<Trained>,
    },
    /// The exported files of a finished run have changed.
    #[error("{} is not as its run left it: {file}: {problem}", .directory.display())]
    Exported {
        /// The exported directory, or the output directory.
        directory: PathBuf,
        /// The file, by its path in the directory.
        file: String,
        /// What is wrong with it.
        problem: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// A pipe, a device or another file type in place of a regular file of the run.
    #[error("{} must be a regular file, found {found}", .path.display())]
    NotRegular {
        /// Where.
        path: PathBuf,
        /// Its type.
        found: &'static str,
    },
    /// The requested step has no checkpoint.
    #[error("{} has no checkpoint `step-{wanted}`: {}", .home.display(), names(.found))]
    Unknown {
        /// The directory of checkpoints.
        home: PathBuf,
        /// The requested step.
        wanted: u64,
        /// Steps with a checkpoint.
        found: Vec<u64>,
    },
}

/// A directory with what a run has trained, as another run begins from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trained {
    /// Of an adapter.
    Adapter(PathBuf),
    /// Of a whole model.
    Model(PathBuf),
}

impl fmt::Display for Trained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trained::Adapter(path) => write!(f, "--adapter {}", shell::path(path)),
            Trained::Model(path) => write!(f, "--model {}", shell::path(path)),
        }
    }
}

impl Failure for CheckpointError {
    fn exit_class(&self) -> ExitClass {
        match self {
            CheckpointError::Changed { differences, .. }
                if differences.iter().any(Difference::is_of_config) =>
            {
                ExitClass::Usage
            }
            CheckpointError::Unknown { .. } => ExitClass::Usage,
            _ => ExitClass::Checkpoint,
        }
    }

    fn next_step(&self) -> String {
        match self {
            CheckpointError::Damaged { older: None, .. } => {
                "no older checkpoint is whole: restore that file, or train again with another --out"
                    .into()
            }
            CheckpointError::Damaged {
                older: Some(step),
                command,
                ..
            } => match command {
                Some(command) => {
                    format!("restore that file, or continue from step {step}: `{command}`")
                }
                None => format!(
                    "restore that file, or continue from step {step} with --resume=step-{step}"
                ),
            },
            CheckpointError::Exported { remedy, .. } => (*remedy).to_owned(),
            CheckpointError::NotRegular { .. } => {
                "restore that file, or remove what has its name; then continue with --resume".into()
            }
            CheckpointError::Changed { result: None, .. } => {
                "change that back, or train with another --out".into()
            }
            CheckpointError::Changed {
                result: Some(result),
                ..
            } => format!(
                "change that back, or begin another run from what was trained: {result} and \
                 another --out"
            ),
            CheckpointError::Unknown { found, .. } if found.is_empty() => {
                "start over with --resume alone".into()
            }
            CheckpointError::Unknown { .. } => {
                "name one of those, or take the newest with --resume alone".into()
            }
        }
    }
}

fn listed(differences: &[Difference]) -> String {
    let shown: Vec<String> = differences.iter().map(ToString::to_string).collect();
    shown.join("; ")
}

fn names(steps: &[u64]) -> String {
    if steps.is_empty() {
        return "it has none".to_owned();
    }
    let names: Vec<String> = steps.iter().map(|step| format!("step-{step}")).collect();
    format!("it has {}", names.join(", "))
}
