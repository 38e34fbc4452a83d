//! Scalars by step -> event files that read like those of an uninterrupted run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use espalier_system::files::{FileError, FileKind, read_regular, write_atomically, write_error};
use prost::Message;

use super::event::{Event, FILE_VERSION, START, SessionLog, Summary, Value, What};
use super::record::{framed, records};
use crate::Error;

/// TensorBoard looks for this in a name, and reads files in the order of their names.
const PREFIX: &str = "events.out.tfevents.";
const SUFFIX: &str = ".espalier";

/// An event file under construction. Its name has the step before it, not time and host, so that a
/// run resumed from that step replaces it.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// Starts the file of a run that starts or resumes after `step` steps. Events of later steps
    /// are removed from the earlier files of `directory`.
    ///
    /// # Units
    /// `wall_time` in seconds since 1970.
    ///
    /// # Errors
    /// [`Error::File`] where the directory or a file in it cannot be read or written.
    pub fn create(directory: &Path, step: u64, wall_time: f64) -> Result<Self, Error> {
        let fail = |path: &Path, error| write_error(path, 0, error);
        fs::create_dir_all(directory).map_err(|error| fail(directory, error))?;
        for (path, follows) in earlier(directory).map_err(|error| fail(directory, error))? {
            if follows < step {
                cut(&path, step)?
            } else {
                fs::remove_file(&path).map_err(|error| fail(&path, error))?
            }
        }
        let path = directory.join(format!("{PREFIX}{step:010}{SUFFIX}"));
        let file = File::create(&path).map_err(|error| fail(&path, error))?;
        let mut created = EventFile { path, file };
        created.append(wall_time, 0, What::FileVersion(FILE_VERSION.to_owned()))?;
        if step > 0 {
            // Makes a running TensorBoard drop the removed events.
            let start = What::SessionLog(SessionLog { status: START });
            created.append(wall_time, step + 1, start)?;
        }
        Ok(created)
    }

    /// Adds values by tag after `step` steps, under the name `group/tag`.
    ///
    /// # Units
    /// `wall_time` in seconds since 1970.
    ///
    /// # Errors
    /// [`Error::File`] where the file cannot be written.
    pub fn scalars(
        &mut self,
        group: &str,
        step: u64,
        wall_time: f64,
        values: &[(&str, f64)],
    ) -> Result<(), Error> {
        let value = |(tag, value): &(&str, f64)| Value {
            tag: format!("{group}/{tag}"),
            simple_value: Some(*value as f32),
        };
        let values = values.iter().map(value).collect();
        self.append(wall_time, step, What::Summary(Summary { values }))
    }

    /// Adds an event in one write: a reader sees it whole or not at all.
    fn append(&mut self, wall_time: f64, step: u64, what: What) -> Result<(), Error> {
        let event = Event {
            wall_time,
            step: step as i64,
            what: Some(what),
        };
        let record = framed(&event.encode_to_vec());
        let written = self.file.write_all(&record);
        written.map_err(|error| write_error(&self.path, record.len() as u64, error).into())
    }
}

/// The event files of `directory`, with the step before each.
fn earlier(directory: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let step = name.to_str().and_then(|name| {
            let step = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
            step.parse().ok()
        });
        found.extend(step.map(|step| (entry.path(), step)));
    }
    Ok(found)
}

/// Removes the events after `step` steps and any torn record from a file.
fn cut(path: &Path, step: u64) -> Result<(), Error> {
    let read = read_regular(path, FileKind::Measurements);
    let bytes = read.map_err(|error| FileError::Read {
        path: path.to_owned(),
        source: error.into(),
    })?;
    let kept = records(&bytes)
        .take_while(|(data, _)| {
            let event = Event::decode(*data);
            event.is_ok_and(|event| event.step <= step as i64)
        })
        .map(|(_, end)| end)
        .last()
        .unwrap_or(0);
    if kept == bytes.len() {
        Ok(())
    } else {
        Ok(write_atomically(path, &bytes[..kept])?)
    }
}
