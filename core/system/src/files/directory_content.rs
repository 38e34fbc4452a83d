//! A directory <-> the hash of every file below it, and the first changed file.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use super::regular_file::described;
use super::{FileError, FileHash, hash_file};

/// The first file of a directory that changed since it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its path in the directory.
    pub file: String,
    /// Description of the problem.
    pub problem: String,
}

impl Damage {
    /// The file `file` and its problem.
    pub fn of(file: &str, problem: &str) -> Self {
        Damage {
            file: file.to_owned(),
            problem: problem.to_owned(),
        }
    }
}

/// The paths of all files below `directory`, with the prefix `name`; an empty directory counts as a
/// file.
///
/// # Errors
/// [`FileError::Read`] for a directory that cannot be listed.
pub fn files_below(directory: &Path, name: &str) -> Result<BTreeSet<String>, FileError> {
    let fail = |source: io::Error| FileError::Read {
        path: directory.to_owned(),
        source,
    };
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let file = entry.file_name().to_string_lossy().into_owned();
        let file = match name {
            "" => file,
            _ => format!("{name}/{file}"),
        };
        if entry.file_type().map_err(fail)?.is_dir() {
            found.append(&mut files_below(&entry.path(), &file)?);
        } else {
            found.insert(file);
        }
    }
    if found.is_empty() && !name.is_empty() {
        found.insert(name.to_owned());
    }
    Ok(found)
}

/// The hash of the file `name` of `directory`, under that path.
///
/// # Errors
/// A file that cannot be read.
pub fn hash_member(directory: &Path, name: &str) -> Result<FileHash, FileError> {
    let found = hash_file(&directory.join(name))?;
    let file = name.to_owned();
    Ok(FileHash { file, ..found })
}

/// Checks that a file of `directory` exists with its saved size. It is not read.
///
/// # Errors
/// [`Damage`] with the problem.
pub fn check_size(directory: &Path, expected: &FileHash) -> Result<(), Damage> {
    let fail = |problem: &str| Err(Damage::of(&expected.file, problem));
    match fs::metadata(directory.join(&expected.file)) {
        Ok(metadata) if !metadata.is_file() => fail(&format!(
            "it must be a regular file, found {}",
            described(metadata.file_type())
        )),
        Ok(metadata) if metadata.len() != expected.bytes => fail(&format!(
            "it has {} bytes, expected {}",
            metadata.len(),
            expected.bytes
        )),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => fail("it is missing"),
            _ => fail(&format!("it cannot be read: {error}")),
        },
        Ok(_) => Ok(()),
    }
}

/// Checks that a file of `directory` has its saved size and hash.
///
/// # Errors
/// [`Damage`] with the problem.
pub fn check_file(directory: &Path, expected: &FileHash) -> Result<(), Damage> {
    // The size first: it needs no reading, and its message is more specific.
    check_size(directory, expected)?;
    let fail = |problem: String| Err(Damage::of(&expected.file, &problem));
    match hash_file(&directory.join(&expected.file)) {
        Ok(found) if found.sha256 == expected.sha256 => Ok(()),
        Ok(found) => fail(format!(
            "its sha256 is {}, expected {}",
            found.sha256, expected.sha256
        )),
        Err(error) => fail(format!("it cannot be read: {error}")),
    }
}
