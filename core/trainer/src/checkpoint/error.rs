//! Errors of resuming a run, with their exit class and next step.

use std::path::PathBuf;

use espalier_system::failure::{ExitClass, Failure};

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
            CheckpointError::Changed { .. } => {
                "change that back, or train with another --out".into()
            }
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
