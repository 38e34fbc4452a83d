//! The record of probed libraries in the user's data directory: none is probed twice, and none that
//! crashed is opened again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use espalier_system::files::{FileKind, read_regular, wait_for};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::report::Tried;
use crate::library::LibraryFault;

/// How long a change waits for the lock.
const PATIENCE: Duration = Duration::from_secs(5);

/// The libraries that were probed, by the hash of their bytes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    libraries: BTreeMap<String, Entry>,
}

/// The record of one library.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Where it lay.
    pub file: PathBuf,
    /// The host that probed it.
    pub host: String,
    /// The outcome.
    #[serde(rename = "verdict")]
    pub outcome: Outcome,
}

/// The outcome of a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// Every component was made or returned an error.
    Passed(Vec<Tried>),
    /// It ended its process or hung.
    Quarantined(LibraryFault),
}

impl Record {
    /// The record at `path`. One that cannot be read counts as empty, so libraries are probed
    /// again.
    pub fn read(path: &Path) -> Self {
        let text = match read_regular(path, FileKind::Record) {
            Ok(text) => text,
            Err(error) if error.is_not_found() => return Record::default(),
            Err(error) => return Record::anew(path, &error),
        };
        serde_json::from_slice(&text).unwrap_or_else(|error| Record::anew(path, &error))
    }

    fn anew(path: &Path, error: &dyn std::error::Error) -> Self {
        let path = path.display();
        tracing::warn!(
            "{path}, the record of probed plugins, cannot be read: {error}; starting a new record"
        );
        Record::default()
    }

    /// The entry of the library of this hash.
    pub fn get(&self, sha256: &str) -> Option<&Entry> {
        self.libraries.get(sha256)
    }

    /// Adds `entry` to the record at `path` and removes older entries of the same file. Concurrent
    /// changes wait for each other for a limited time. Where the file system has no locks, an entry
    /// may be lost, and the library is probed again.
    pub fn put(path: &Path, sha256: &str, entry: Entry) {
        if let Err(error) = Record::change(path, sha256, entry) {
            let path = path.display();
            tracing::warn!("{path}, the record of probed plugins, cannot be written: {error}");
        }
    }

    fn change(path: &Path, sha256: &str, entry: Entry) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let _held = wait_for(&path.with_extension("lock"), PATIENCE)?;
        let mut record = Record::read(path);
        record.libraries.retain(|_, other| other.file != entry.file);
        record.libraries.insert(sha256.to_owned(), entry);
        record.write(path, folder)
    }

    /// Writes atomically, under a temporary name: others may read the file at the same time.
    fn write(&self, path: &Path, folder: &Path) -> io::Result<()> {
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(format!("{}\n", serde_json::to_string_pretty(self)?).as_bytes())?;
        file.persist(path)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
