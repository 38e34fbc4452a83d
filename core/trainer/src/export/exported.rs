//! `adapter/` or `model/` <-> the file hashes in `run.json`, which identify a finished run.

use std::path::Path;

use espalier_system::files::{Damage, FileHash, check_file, check_size, files_below, hash_member};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::Error;

/// The key of `run.json`: null from the start of the run. Older runs lack it.
pub(crate) const EXPORTED: &str = "exported";

/// The files of an exported directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exported {
    /// The directory's name: `adapter` or `model`.
    pub directory: String,
    /// Its files, by their relative paths.
    pub files: Vec<FileHash>,
    /// Completed steps of the run that exported it; older runs lack it.
    #[serde(default)]
    pub steps: Option<u64>,
}

/// The record of exported files in `run.json`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExportRecord {
    /// No record: an older program kept no hashes.
    Never,
    /// The run has not finished.
    NotYet,
    /// These files.
    These(Exported),
}

impl ExportRecord {
    /// The state in the record `run`.
    pub fn of(run: &Json) -> Self {
        match run.get(EXPORTED) {
            None => ExportRecord::Never,
            Some(kept) => serde_json::from_value(kept.clone())
                .map_or(ExportRecord::NotYet, ExportRecord::These),
        }
    }
}

impl Exported {
    /// The files of `directory`, whose final name is `name`.
    ///
    /// # Errors
    /// A directory that cannot be listed, a file that cannot be read.
    pub fn of(directory: &Path, name: &str) -> Result<Self, Error> {
        let names = files_below(directory, "")?;
        let hashes = names.iter().map(|name| hash_member(directory, name));
        Ok(Exported {
            directory: name.to_owned(),
            files: hashes.collect::<Result<_, _>>()?,
            steps: None,
        })
    }

    /// Whether the run with the record `run` has become longer than it was at the export.
    pub fn is_outgrown(&self, run: &Json) -> bool {
        let end = last_step(run);
        self.steps.zip(end).is_some_and(|(steps, end)| steps < end)
    }

    /// Checks every byte of the files in the output directory `out`.
    ///
    /// # Errors
    /// The first missing or changed file.
    pub fn check(&self, out: &Path) -> Result<(), Damage> {
        let directory = out.join(&self.directory);
        let mut files = self.files.iter();
        files.try_for_each(|file| check_file(&directory, file))
    }

    /// As [`Exported::check`], but with names and sizes only: no file is read.
    ///
    /// # Errors
    /// As [`Exported::check`].
    pub fn look(&self, out: &Path) -> Result<(), Damage> {
        let directory = out.join(&self.directory);
        let mut files = self.files.iter();
        files.try_for_each(|file| check_size(&directory, file))
    }
}

/// The step that ends the run with the record `run`.
pub(crate) fn last_step(run: &Json) -> Option<u64> {
    let early = run["ended_early"]["step"].as_u64();
    early.or(run["data"]["total_steps"].as_u64())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn records_without_hashes_differ_from_records_of_unfinished_runs() {
        assert_eq!(ExportRecord::of(&json!({"seed": 1})), ExportRecord::Never);
        for not_yet in [json!(null), json!(7), json!({"directory": "adapter"})] {
            assert_eq!(
                ExportRecord::of(&json!({ EXPORTED: not_yet })),
                ExportRecord::NotYet
            );
        }
        let exported = Exported {
            directory: "adapter".to_owned(),
            files: Vec::new(),
            steps: Some(6),
        };
        let run = json!({ EXPORTED: exported });
        assert_eq!(ExportRecord::of(&run), ExportRecord::These(exported));
    }

    #[test]
    fn a_run_outgrows_its_export_where_it_has_more_steps() {
        let exported = |steps| Exported {
            directory: "adapter".to_owned(),
            files: Vec::new(),
            steps,
        };
        let run = json!({"data": {"total_steps": 9}});
        assert!(exported(Some(6)).is_outgrown(&run));
        assert!(!exported(Some(9)).is_outgrown(&run));
        assert!(!exported(None).is_outgrown(&run), "it is of an older run");
        let early = json!({"data": {"total_steps": 9}, "ended_early": {"step": 6}});
        assert!(!exported(Some(6)).is_outgrown(&early));
    }

    #[test]
    fn every_change_is_detected_and_other_files_are_ignored() {
        let out = tempfile::tempdir().expect("a folder");
        let path = |name: &str| out.path().join("model").join(name);
        std::fs::create_dir_all(path("more")).expect("created");
        for name in ["a", "more/b"] {
            std::fs::write(path(name), name).expect("written");
        }
        let exported = Exported::of(&out.path().join("model"), "model").expect("read");
        let names: Vec<_> = exported.files.iter().map(|file| &file.file[..]).collect();
        assert_eq!(names, ["a", "more/b"]);
        std::fs::write(path("notes"), "mine").expect("written");
        assert_eq!(exported.check(out.path()), Ok(()));
        std::fs::write(path("more/b"), "more/c").expect("written");
        assert_eq!(exported.look(out.path()), Ok(()), "nothing is read");
        let damage = exported.check(out.path()).expect_err("changed");
        assert!(damage.file == "more/b" && damage.problem.starts_with("its sha256 is "));
        for (name, problem) in [("a", "it has 0 bytes, expected 1"), ("a", "it is missing")] {
            if problem.contains("missing") {
                std::fs::remove_file(path(name)).expect("removed")
            } else {
                std::fs::write(path(name), "").expect("written")
            }
            let damage = Damage::of(name, problem);
            assert_eq!(exported.look(out.path()), Err(damage.clone()));
            assert_eq!(exported.check(out.path()), Err(damage));
        }
    }
}
