//! A plugin library -> whether it can be opened and its components made. This is tried in a
//! separate process, so that a crash, an endless loop or an `exit` ends only that process.

mod child;
mod record;
pub(crate) mod report;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

pub use report::Trial;
pub use report::{Failure, Tried};

use crate::library::{LibraryFault, LibraryFile};

use record::{Entry, Outcome, Record};

/// Probes libraries by a program that runs [`crate::trial::answer`] for `plugins probe FILE`, as
/// `host` does.
#[derive(Clone, Debug)]
pub struct Prober {
    program: PathBuf,
    time_limit: Duration,
    record: Option<PathBuf>,
    anew: bool,
}

/// The record of a library.
pub enum Recalled {
    /// Nothing, or a probe by another host.
    Nothing,
    /// It was probed; each component was made or refused.
    Passed(Vec<Tried>),
    /// It must not be opened.
    Quarantined(LibraryFault),
}

impl Prober {
    /// Probes libraries with `program`, each for at most `time_limit`.
    pub fn new(program: PathBuf, time_limit: Duration) -> Self {
        Prober {
            program,
            time_limit,
            record: None,
            anew: false,
        }
    }

    /// The same prober with the record file `record`: no library is probed twice, and none that
    /// crashed is opened.
    pub fn remembering(mut self, record: PathBuf) -> Self {
        self.record = Some(record);
        self
    }

    /// The same prober, which probes recorded libraries again.
    pub fn anew(mut self) -> Self {
        self.anew = true;
        self
    }

    /// The records of `libraries`, in their order.
    pub fn recall(&self, libraries: &[&LibraryFile]) -> Vec<Recalled> {
        let record = match &self.record {
            Some(path) if !self.anew => Record::read(path),
            _ => Record::default(),
        };
        let host = self.host();
        let recall = |library: &&LibraryFile| match record.get(&library.sha256) {
            None => Recalled::Nothing,
            Some(entry) => match &entry.outcome {
                Outcome::Quarantined(fault) => Recalled::Quarantined(LibraryFault::Quarantined {
                    fault: Box::new(fault.clone()),
                }),
                Outcome::Passed(tried) if entry.host == host => Recalled::Passed(tried.clone()),
                Outcome::Passed(_) => Recalled::Nothing,
            },
        };
        libraries.iter().map(recall).collect()
    }

    /// Opens the library and makes each of its components with default options, in another process.
    ///
    /// # Errors
    /// The library's fault. A library that ended its process or hung is recorded.
    pub fn probe(&self, library: &LibraryFile) -> Result<Vec<Tried>, LibraryFault> {
        let found = self.run(library, None);
        let outcome = match &found {
            // A driver or a library below the plugin may be installed later, or elsewhere.
            Ok(tried) if tried.iter().any(Tried::lacks_device) => return found,
            Ok(tried) => Outcome::Passed(tried.clone()),
            Err(
                fault @ (LibraryFault::Crashed { .. }
                | LibraryFault::Exited { .. }
                | LibraryFault::Hung { .. }),
            ) => Outcome::Quarantined(fault.clone()),
            // A missing dependency may be installed later.
            Err(_) => return found,
        };
        if let Some(path) = &self.record {
            let entry = Entry {
                file: library.path.clone(),
                host: self.host(),
                outcome,
            };
            Record::put(path, &library.sha256, entry);
        }
        found
    }

    /// Makes one component with its options and calls it, in another process. Nothing is recorded,
    /// since other options may work.
    ///
    /// # Errors
    /// The library's fault.
    pub fn exercise(
        &self,
        library: &LibraryFile,
        trial: &Trial,
    ) -> Result<Option<Failure>, LibraryFault> {
        let tried = self.run(library, Some(trial))?;
        Ok(tried.into_iter().find_map(|tried| tried.failure))
    }

    fn run(
        &self,
        library: &LibraryFile,
        trial: Option<&Trial>,
    ) -> Result<Vec<Tried>, LibraryFault> {
        let report = child::run(&self.program, self.time_limit, library, trial)?;
        if let Some(fault) = report.fault {
            return Err(fault);
        }
        if report.sha256 != library.sha256 {
            return Err(LibraryFault::Changed {
                expected: library.sha256.clone(),
                found: report.sha256,
            });
        }
        Ok(report.components)
    }

    /// Identifies this build of the host without reading all of its file.
    fn host(&self) -> String {
        fs::metadata(&self.program).map_or_else(
            |_| "unknown".to_owned(),
            |file| format!("{}-{}.{:09}", file.size(), file.mtime(), file.mtime_nsec()),
        )
    }
}
