//! An output directory -> its checkpoints: list, choice of the newest, pruning.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use espalier_system::files::{self, FileError};

use super::verify::verify;
use super::{CheckpointError, METRICS, Manifest};
use crate::Error;

/// The checkpoint to resume from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeFrom {
    /// The checkpoint with most steps.
    Newest,
    /// The checkpoint after this many steps.
    Step(u64),
}

/// A verified checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Its directory.
    pub path: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
}

impl Checkpoint {
    /// Its copy of the run's metrics.
    pub(crate) fn metrics(&self) -> PathBuf {
        self.path.join(METRICS)
    }
}

/// The directory `checkpoints` of a run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    home: PathBuf,
}

impl Checkpoints {
    /// The checkpoints of the run in `out`.
    pub fn of(out: &Path) -> Self {
        Checkpoints {
            home: out.join("checkpoints"),
        }
    }

    /// The directory of the checkpoint after `step` steps.
    pub fn path(&self, step: u64) -> PathBuf {
        self.home.join(format!("step-{step}"))
    }

    /// The steps with a checkpoint, in order.
    ///
    /// # Errors
    /// [`FileError::Read`] for a directory that cannot be listed.
    pub fn steps(&self) -> Result<Vec<u64>, FileError> {
        let mut steps: Vec<u64> = self
            .names()?
            .iter()
            .filter_map(|name| step_of(name))
            .collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The checkpoint to resume from, verified byte by byte; `None` where there is none yet.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`], which names an intact older one but does not use it;
    /// [`CheckpointError::Unknown`] for a step without a checkpoint.
    pub fn choose(&self, from: ResumeFrom) -> Result<Option<Checkpoint>, Error> {
        self.sweep()?;
        let steps = self.steps()?;
        let step = match (from, steps.last()) {
            (ResumeFrom::Newest, None) => return Ok(None),
            (ResumeFrom::Newest, Some(&newest)) => newest,
            (ResumeFrom::Step(wanted), _) if steps.contains(&wanted) => wanted,
            (ResumeFrom::Step(wanted), _) => {
                return Err(Error::Resume(CheckpointError::Unknown {
                    home: self.home.clone(),
                    wanted,
                    found: steps,
                }));
            }
        };
        let path = self.path(step);
        match verify(&path, step) {
            Ok(manifest) => Ok(Some(Checkpoint { path, manifest })),
            Err(damage) => {
                let mut earlier = steps.iter().rev().filter(|&&other| other < step);
                let whole = |&&other: &&u64| verify(&self.path(other), other).is_ok();
                Err(Error::Resume(CheckpointError::Damaged {
                    older: earlier.find(whole).copied(),
                    command: None,
                    checkpoint: path,
                    file: damage.file,
                    problem: damage.problem,
                }))
            }
        }
    }

    /// Removes the leftovers of a process that died while it saved or removed a checkpoint.
    pub(crate) fn sweep(&self) -> Result<(), FileError> {
        let names = self.names()?;
        let partial = names
            .iter()
            .filter_map(|name| name.strip_suffix(".partial"));
        for name in partial {
            let target = name.strip_suffix(".replaced").unwrap_or(name);
            if step_of(target).is_some() {
                files::sweep_leftover(&self.home.join(target))?;
            }
        }
        Ok(())
    }

    /// Removes all but the newest `keep` of the checkpoints up to `newest`, and that of step
    /// `best`. Each is renamed first, so that none is ever visible in part.
    pub(crate) fn prune(&self, newest: u64, keep: u64, best: Option<u64>) -> Result<(), FileError> {
        let mut steps = self.steps()?;
        steps.retain(|&step| step <= newest && Some(step) != best);
        let surplus = steps.len().saturating_sub(keep as usize);
        for &step in &steps[..surplus] {
            files::remove_committed(&self.path(step))?;
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>, FileError> {
        let fail = |source| FileError::Read {
            path: self.home.clone(),
            source,
        };
        let entries = match fs::read_dir(&self.home) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry.map_err(fail)?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// The step in a name `step-N` in the format of this program.
fn step_of(name: &str) -> Option<u64> {
    let step = name.strip_prefix("step-")?.parse().ok()?;
    (name == format!("step-{step}")).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(names: &[&str]) -> (tempfile::TempDir, Checkpoints) {
        let out = tempfile::tempdir().expect("a folder");
        let checkpoints = Checkpoints::of(out.path());
        for name in names {
            fs::create_dir_all(checkpoints.home.join(name).join("adapter")).expect("created");
        }
        (out, checkpoints)
    }

    #[test]
    fn names_are_ordered_by_number_and_other_files_are_kept() {
        let (_out, found) = made(&["step-9", "step-10", "step-010", "step-", "mine"]);
        assert_eq!(found.steps().expect("listed"), [9, 10]);
        found.prune(10, 1, None).expect("pruned");
        assert_eq!(
            found.names().expect("listed"),
            ["mine", "step-", "step-010", "step-10"]
        );
        let (_out, nothing) = made(&[]);
        assert_eq!(nothing.steps().expect("no directory").len(), 0);
    }

    #[test]
    fn pruning_keeps_checkpoints_after_the_given_step() {
        let (_out, found) = made(&["step-1", "step-2", "step-3", "step-7"]);
        found.prune(3, 2, None).expect("pruned");
        assert_eq!(found.steps().expect("listed"), [2, 3, 7]);
        found.prune(7, 1, Some(2)).expect("pruned");
        assert_eq!(found.steps().expect("listed"), [2, 7], "the best stays");
    }

    #[test]
    fn leftovers_are_removed_and_renamed_checkpoints_restored() {
        let names = [
            "step-1",
            "step-2.partial",
            "step-3.replaced.partial",
            "my.partial",
        ];
        let (_out, found) = made(&names);
        found.sweep().expect("swept");
        assert_eq!(
            found.names().expect("listed"),
            ["my.partial", "step-1", "step-3"]
        );
    }
}
