//! The metrics of a run -> `metrics.jsonl`, line by line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use espalier_data::Counts;
use espalier_system::files;
use serde::Serialize;

use crate::Error;

/// The file `metrics.jsonl`: each line is written atomically.
pub(super) struct Metrics {
    path: PathBuf,
    file: File,
    /// Row counts for the next line.
    data: Option<Counts>,
}

impl Metrics {
    /// Creates an empty file.
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        Metrics::open(path, File::create(path))
    }

    /// Continues after the lines of `earlier`, which replace the file's content atomically.
    pub(super) fn go_on(path: &Path, earlier: &Path) -> Result<Self, Error> {
        files::copy_file(earlier, path)?;
        Metrics::open(path, OpenOptions::new().append(true).open(path))
    }

    /// Adds row counts to the first line, if some rows are lost or cut.
    pub(super) fn headed(mut self, counts: Counts) -> Self {
        self.data = (!counts.reasons().is_empty()).then_some(counts);
        self
    }

    fn open(path: &Path, file: io::Result<File>) -> Result<Self, Error> {
        let path = path.to_owned();
        match file {
            Ok(file) => Ok(Metrics {
                path,
                file,
                data: None,
            }),
            Err(error) => Err(files::write_error(&path, 0, error).into()),
        }
    }

    /// Syncs all lines to disk.
    pub(super) fn sync(&self) -> Result<(), Error> {
        let synced = self.file.sync_data();
        synced.map_err(|error| files::write_error(&self.path, 0, error).into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn append(&mut self, line: &impl Serialize) -> Result<(), Error> {
        let mut line = serde_json::to_value(line).expect("metrics are plain data");
        if let Some(counts) = self.data.take() {
            line["data"] = serde_json::to_value(counts).expect("counts are plain data");
        }
        let mut text = line.to_string();
        text.push('\n');
        let written = self.file.write_all(text.as_bytes());
        let bytes = text.len() as u64;
        written.map_err(|error| files::write_error(&self.path, bytes, error).into())
    }
}
