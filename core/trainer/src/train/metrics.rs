//! The metrics of a run -> `metrics.jsonl`, one line at a time.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Error;

/// The file `metrics.jsonl`: a line is there whole or not at all.
pub(super) struct Metrics {
    path: PathBuf,
    file: File,
}

impl Metrics {
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|source| Error::Write {
            path: path.to_owned(),
            source,
        })?;
        Ok(Metrics {
            path: path.to_owned(),
            file,
        })
    }

    pub(super) fn append(&mut self, line: &impl Serialize) -> Result<(), Error> {
        let mut text = serde_json::to_string(line).expect("metrics are plain data");
        text.push('\n');
        self.file
            .write_all(text.as_bytes())
            .map_err(|source| Error::Write {
                path: self.path.clone(),
                source,
            })
    }
}
