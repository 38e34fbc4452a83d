//! Names from the config -> files of rows. A repository id stands for its files in the local
//! Hugging Face cache.

use std::path::{Path, PathBuf};

use espalier_system::files::{FileError, HubCache, RepoKind};

use super::error::DataError;

/// Extensions of files of rows.
const EXTENSIONS: [&str; 3] = ["jsonl", "json", "parquet"];

/// The part of a repository's files that is meant, where file names show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RepositoryPart {
    /// Files with `train` in their path.
    Training,
    /// Files with `validation`, `test` or `eval` in their path.
    HeldOut,
}

impl RepositoryPart {
    fn words(self) -> &'static [&'static str] {
        match self {
            RepositoryPart::Training => &["train"],
            RepositoryPart::HeldOut => &["validation", "test", "eval"],
        }
    }
}

/// The files that `names` stand for, in order; those of a repository sorted by name. Where no file
/// name of a repository shows the part, all of its files.
///
/// # Errors
/// [`DataError::Repository`] for a repository that is not in `cache`.
/// [`DataError::NoRowsInRepository`] for one without files of rows.
pub(super) fn named_files(
    cache: &HubCache,
    names: &[PathBuf],
    part: RepositoryPart,
) -> Result<Vec<PathBuf>, DataError> {
    let mut files = Vec::with_capacity(names.len());
    for name in names {
        if !is_repository(name) {
            files.push(name.clone());
            continue;
        }
        let snapshot = cache.resolve(RepoKind::Dataset, name)?;
        let mut found = Vec::new();
        collect(&snapshot, &mut found).map_err(|error| DataError::io(&snapshot, error))?;
        found.sort_unstable();
        let of_part = |path: &&PathBuf| {
            let inside = path.strip_prefix(&snapshot).unwrap_or(path);
            let inside = inside.to_string_lossy().to_lowercase();
            part.words().iter().any(|word| inside.contains(word))
        };
        let chosen: Vec<PathBuf> = found.iter().filter(of_part).cloned().collect();
        let chosen = if chosen.is_empty() { found } else { chosen };
        if chosen.is_empty() {
            return Err(DataError::NoRowsInRepository { path: snapshot });
        }
        files.extend(chosen);
    }
    Ok(files)
}

/// Whether `name` is an id such as `org/name` and not a path: it has no file extension and does not
/// exist as a file.
fn is_repository(name: &Path) -> bool {
    let of_rows = |extension: &str| EXTENSIONS.contains(&extension.to_lowercase().as_str());
    let extension = name.extension().and_then(|found| found.to_str());
    name.is_relative()
        && name.components().count() == 2
        && !extension.is_some_and(of_rows)
        && !name.exists()
}

/// Adds the files of rows below `directory`.
fn collect(directory: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in directory.read_dir()? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
            continue;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) {
            found.push(path);
        }
    }
    Ok(())
}

impl From<FileError> for DataError {
    fn from(error: FileError) -> Self {
        DataError::Repository(Box::new(error))
    }
}

#[cfg(test)]
mod tests;
