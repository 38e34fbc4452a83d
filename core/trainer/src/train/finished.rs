//! An output directory with `adapter/` or `model/` -> whether its run finished, by its files.

use std::path::{Path, PathBuf};

use espalier_engine::observer::{Event, Observer};
use espalier_system::files::{
    AdapterDirectory, Damage, FileError, FileKind, ModelDirectory, RunDirectory, TensorStore,
    read_regular,
};
use serde_json::Value as Json;

use crate::export::ExportRecord;

/// The content of `run.json`.
#[derive(Debug)]
pub(super) enum Recorded {
    /// It is missing.
    Nothing,
    /// It cannot be read.
    Garbled(String),
    /// A run.
    Run(Json),
}

/// Whether a run finished.
#[derive(Debug)]
pub(super) enum Finish {
    /// It did not finish.
    No,
    /// It finished, and its exported files are intact.
    Yes(PathBuf),
    /// It finished and was made longer since: its exported files are those of fewer steps.
    Outgrown,
    /// The export path exists, but its files are not those of a finished run.
    Damaged(PathBuf, Damage),
}

impl Recorded {
    /// The content of `run.json` in the output directory `home`.
    pub fn of(home: &Path) -> Self {
        let text = match read_regular(&home.join("run.json"), FileKind::Record) {
            Ok(text) => text,
            Err(error) if error.is_not_found() => return Recorded::Nothing,
            Err(error) => return Recorded::Garbled(error.to_string()),
        };
        match serde_json::from_slice(&text) {
            Ok(run) => Recorded::Run(run),
            Err(error) => Recorded::Garbled(error.to_string()),
        }
    }

    /// The run, if there is one.
    pub fn run(&self) -> Option<&Json> {
        match self {
            Recorded::Run(run) => Some(run),
            Recorded::Nothing | Recorded::Garbled(_) => None,
        }
    }

    /// The run's record of exported files.
    pub fn kept(&self) -> ExportRecord {
        self.run().map_or(ExportRecord::Never, ExportRecord::of)
    }
}

impl Finish {
    /// Whether the run in `directory` finished. Prints a note where this is uncertain.
    pub fn of(directory: &RunDirectory, recorded: &Recorded, observer: &dyn Observer) -> Self {
        let Some(saved) = directory.finished() else {
            return Finish::No;
        };
        let home = directory.home();
        let found = match (recorded, recorded.kept()) {
            (Recorded::Garbled(why), _) => {
                return Finish::Damaged(home.to_owned(), Damage::of("run.json", why));
            }
            (_, ExportRecord::These(exported)) => {
                if recorded.run().is_some_and(|run| exported.is_outgrown(run)) {
                    return Finish::Outgrown;
                }
                let saved = home.join(&exported.directory);
                (saved, exported.check(home))
            }
            (_, ExportRecord::NotYet) => {
                let problem = "the run had not written it";
                return Finish::Damaged(home.to_owned(), Damage::of(&name_of(&saved), problem));
            }
            (_, ExportRecord::Never) => {
                let read = read_all(&saved).map_err(|error| {
                    Damage::of(&name_of(&saved), &format!("it cannot be read: {error}"))
                });
                if read.is_ok() {
                    observer.observe(&Event::Note(&format!(
                        "{}: its run recorded no hashes; its files can be read and are used unverified",
                        saved.display()
                    )));
                }
                return match read {
                    Ok(()) => Finish::Yes(saved),
                    Err(damage) => Finish::Damaged(home.to_owned(), damage),
                };
            }
        };
        match found {
            (saved, Ok(())) => Finish::Yes(saved),
            (saved, Err(damage)) => Finish::Damaged(saved, damage),
        }
    }
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Reads all tensors of an adapter's or a model's directory.
fn read_all(saved: &Path) -> Result<(), FileError> {
    let read = |tensors: &TensorStore| {
        let mut entries = tensors.entries().iter();
        entries.try_for_each(|entry| {
            tensors.stream_tensor_bytes(&entry.name, &mut |_| Ok::<_, FileError>(()))
        })
    };
    match name_of(saved).as_str() {
        "adapter" => read(AdapterDirectory::open(saved)?.tensors()),
        _ => read(&ModelDirectory::open(saved)?.tensors()?),
    }
}
