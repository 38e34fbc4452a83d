//! The place of a row: its file and its line.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where a row begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLocation {
    /// The file.
    pub path: PathBuf,
    /// Its line, counted from 1.
    pub line: u64,
}

impl RowLocation {
    pub(crate) fn new(path: &Path, line: u64) -> Self {
        RowLocation {
            path: path.to_path_buf(),
            line,
        }
    }
}

impl fmt::Display for RowLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}
