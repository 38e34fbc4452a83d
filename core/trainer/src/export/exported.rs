//! `adapter/` or `model/` <-> what `run.json` says of its files, by which a finished run is known.

use std::path::Path;

use espalier_system::files::{Damage, FileHash, check_file, check_size, files_below, hash_member};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::Error;

/// The key of `run.json`: null from the run's beginning on. Runs of before it have none.
pub(crate) const EXPORTED: &str = "exported";

/// The files of an exported directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exported {
    /// The directory's name: `adapter` or `model`.
    pub directory: String,
    /// Its files, by their paths in it.
    pub files: Vec<FileHash>,
}

/// What `run.json` says of what its run exported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kept {
    /// Nothing: its program kept no hashes.
    Never,
    /// The run has not come to its end.
    NotYet,
    /// These files.
    These(Exported),
}

impl Kept {
    /// What the record `run` says.
    pub fn of(run: &Json) -> Self {
        match run.get(EXPORTED) {
            None => Kept::Never,
            Some(kept) => serde_json::from_value(kept.clone()).map_or(Kept::NotYet, Kept::These),
        }
    }
}

impl Exported {
    /// The files of `directory`, which is to be called `name`.
    ///
    /// # Errors
    /// A directory that cannot be listed, a file that cannot be read.
    pub fn of(directory: &Path, name: &str) -> Result<Self, Error> {
        let names = files_below(directory, "")?;
        let hashes = names.iter().map(|name| hash_member(directory, name));
        Ok(Exported {
            directory: name.to_owned(),
            files: hashes.collect::<Result<_, _>>()?,
        })
    }

    /// Checks every byte of the files in the output directory `out`.
    ///
    /// # Errors
    /// The first file that is not as it was.
    pub fn check(&self, out: &Path) -> Result<(), Damage> {
        let directory = out.join(&self.directory);
        let mut files = self.files.iter();
        files.try_for_each(|file| check_file(&directory, file))
    }

    /// As [`Exported::check`], of names and sizes alone: no file is read.
    ///
    /// # Errors
    /// As [`Exported::check`].
    pub fn look(&self, out: &Path) -> Result<(), Damage> {
        let directory = out.join(&self.directory);
        let mut files = self.files.iter();
        files.try_for_each(|file| check_size(&directory, file))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_tells_runs_that_kept_no_hashes_from_those_that_have_none_yet() {
        assert_eq!(Kept::of(&json!({"seed": 1})), Kept::Never);
        for not_yet in [json!(null), json!(7), json!({"directory": "adapter"})] {
            assert_eq!(Kept::of(&json!({ EXPORTED: not_yet })), Kept::NotYet);
        }
        let exported = Exported {
            directory: "adapter".to_owned(),
            files: Vec::new(),
        };
        let run = json!({ EXPORTED: exported });
        assert_eq!(Kept::of(&run), Kept::These(exported));
    }

    #[test]
    fn every_change_is_found_and_what_stands_beside_is_none() {
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
