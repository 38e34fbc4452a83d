//! The probing process: opens a library, makes its components, and announces each call.

mod exercise;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use espalier_interface::{PluginError, Role, Serial};
use rustix::process::{Resource, Rlimit, Signal};
use serde_json::Map;

use crate::library::{Doing, LibraryFault, LibraryFile, WorldWritable};
use crate::probe::report::{Failure, Line, Report, Trial, Tried};
use crate::registry::{Listing, Registry, RegistryError};

/// The answer of a library, or a fault of the whole library.
pub(super) type Answered<T> = Result<T, LibraryFault>;

/// Writes the output of a probing process, which the library's own output cannot reach.
pub(super) struct Answer(File);

impl Answer {
    /// Takes over standard output; the library's output goes to standard error.
    fn take() -> io::Result<Self> {
        let out = io::stdout().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdout(io::stderr())?;
        Ok(Answer(File::from(out)))
    }

    fn say(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_string(line).expect("a line is plain data");
        text.push('\n');
        self.0.write_all(text.as_bytes())
    }

    /// Announces that `callback` is called next.
    pub(super) fn doing(&mut self, callback: &str, component: Option<&str>) -> io::Result<()> {
        self.say(&Line::Doing(Doing::new(callback, component)))
    }
}

/// Probes the library at `path` in this process, which may crash, and reports on standard output. A
/// library without the hash `expected` is reported and not opened. With `trial`, the JSON that
/// [`crate::probe::Prober`] passes, one component is made with given options and called.
///
/// # Errors
/// Where standard output cannot be written, or the trial is invalid. Faults of the library are part
/// of the report.
pub fn answer(path: &Path, expected: Option<&str>, trial: Option<&str>) -> io::Result<()> {
    let trial: Option<Trial> = trial.map(serde_json::from_str).transpose()?;
    limit_harm();
    let mut answer = Answer::take()?;
    answer.doing("open", None)?;
    let file = LibraryFile::inspect(path, WorldWritable::Allowed);
    let mut report = Report {
        sha256: file.sha256.clone(),
        fault: None,
        components: Vec::new(),
    };
    let tried = if expected.is_some_and(|expected| expected != report.sha256) {
        Ok(Vec::new())
    } else {
        match file.open() {
            Ok(root) => {
                let registry = Registry::of_opened(file, root);
                match &trial {
                    None => make_all(&registry, &mut answer)?,
                    Some(trial) => {
                        exercise::run(&registry, trial, &mut answer)?.map(|one| vec![one])
                    }
                }
            }
            Err(error) => Err(error.fault),
        }
    };
    match tried {
        Ok(components) => report.components = components,
        Err(fault) => report.fault = Some(fault),
    }
    answer.say(&Line::Report(report))?;
    answer.doing("exit", None)
}

/// Prevents a core file on a crash, and ends this process with its parent.
fn limit_harm() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Refusal of either is harmless.
    let _ = rustix::process::setrlimit(Resource::Core, none);
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

fn make_all(registry: &Registry, answer: &mut Answer) -> io::Result<Answered<Vec<Tried>>> {
    let mut all = Vec::new();
    for listing in registry.list() {
        match make(registry, &listing, answer)? {
            Ok(tried) => all.push(tried),
            Err(fault) => return Ok(Err(fault)),
        }
    }
    Ok(Ok(all))
}

/// Makes a component with default options and destroys it.
fn make(
    registry: &Registry,
    listing: &Listing,
    answer: &mut Answer,
) -> io::Result<Answered<Tried>> {
    let name = listing.component.as_str();
    answer.doing("create", Some(name))?;
    // A role of a later host version is skipped.
    let made = match Role::from_name(&listing.role) {
        Some(role) => registry
            .instance(role, name, &Map::new(), &Serial)
            .map(Some),
        None => Ok(None),
    };
    answer.doing("destroy", Some(name))?;
    Ok(tried(name, made.map(drop)))
}

/// The outcome of a component: its own error, or the fault of the whole library.
pub(super) fn tried(component: &str, made: Result<(), RegistryError>) -> Answered<Tried> {
    let failure = match made {
        Ok(()) => None,
        Err(RegistryError::Library(error)) => return Err(error.fault),
        Err(RegistryError::Plugin {
            callback, source, ..
        }) => Some(Failure::new(&callback, source)),
        Err(other) => Some(Failure::new(
            "create",
            PluginError::invalid(other.to_string()),
        )),
    };
    Ok(Tried {
        component: component.to_owned(),
        failure,
    })
}
