//! The record of a file that was read.

use std::path::PathBuf;

use super::format::Format;
use super::options::TrainOn;

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileRecord {
    /// As it was given.
    pub path: PathBuf,
    /// sha256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
    /// Its rows, left-out ones included.
    pub rows: u64,
    /// What its fields mean.
    pub format: Format,
    /// What decides about the trained tokens of its rows; never `auto`. Labels of pre-tokenized
    /// rows decide alone.
    pub train_on: TrainOn,
}
