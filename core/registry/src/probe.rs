//! A plugin library -> whether it can be opened and its components made, tried in a process of its own, so that a crash, an
//! endless loop or an `exit` ends that process and no other.

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

use record::{Entry, Record, Verdict};

/// What tries libraries: a program that answers `plugins probe FILE` by [`crate::trial::answer`], as `host` does.
#[derive(Clone, Debug)]
pub struct Prober {
    program: PathBuf,
    time_limit: Duration,
    record: Option<PathBuf>,
    anew: bool,
}

/// What is on record of a library.
pub enum Recalled {
    /// Nothing, or a probe by another host.
    Nothing,
    /// It was tried, and each component made or refused.
    Passed(Vec<Tried>),
    /// It is not to be opened.
    Quarantined(LibraryFault),
}

impl Prober {
    /// Tries libraries with `program`, each for at most `time_limit`.
    pub fn new(program: PathBuf, time_limit: Duration) -> Self {
        Prober {
            program,
            time_limit,
            record: None,
            anew: false,
        }
    }

    /// As this one, keeping what it finds in the file `record`: no library is tried twice, and none that crashed is opened.
    pub fn remembering(mut self, record: PathBuf) -> Self {
        self.record = Some(record);
        self
    }

    /// As this one, trying also what was tried before.
    pub fn anew(mut self) -> Self {
        self.anew = true;
        self
    }

    /// What is known of `libraries` from before, in their order.
    pub fn recall(&self, libraries: &[&LibraryFile]) -> Vec<Recalled> {
        let record = match &self.record {
            Some(path) if !self.anew => Record::read(path),
            _ => Record::default(),
        };
        let host = self.host();
        let recall = |library: &&LibraryFile| match record.get(&library.sha256) {
            None => Recalled::Nothing,
            Some(entry) => match &entry.verdict {
                Verdict::Quarantined(fault) => Recalled::Quarantined(LibraryFault::Quarantined {
                    fault: Box::new(fault.clone()),
                }),
                Verdict::Passed(tried) if entry.host == host => Recalled::Passed(tried.clone()),
                Verdict::Passed(_) => Recalled::Nothing,
            },
        };
        libraries.iter().map(recall).collect()
    }

    /// Opens the library and makes each of its components with default options, elsewhere.
    ///
    /// # Errors
    /// The library's fault. One that ended or held up its process is on record from then on.
    pub fn probe(&self, library: &LibraryFile) -> Result<Vec<Tried>, LibraryFault> {
        let found = self.run(library, None);
        let verdict = match &found {
            Ok(tried) => Verdict::Passed(tried.clone()),
            Err(
                fault @ (LibraryFault::Crashed { .. }
                | LibraryFault::Exited { .. }
                | LibraryFault::Hung { .. }),
            ) => Verdict::Quarantined(fault.clone()),
            // What is missing may be there the next time.
            Err(_) => return found,
        };
        if let Some(path) = &self.record {
            let entry = Entry {
                file: library.path.clone(),
                host: self.host(),
                verdict,
            };
            Record::put(path, &library.sha256, entry);
        }
        found
    }

    /// Makes one component with its options and calls it, elsewhere. Nothing of it is kept on record: other options may
    /// well do.
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

    /// Tells this host from one that was built otherwise, without reading all of it.
    fn host(&self) -> String {
        fs::metadata(&self.program).map_or_else(
            |_| "unknown".to_owned(),
            |file| format!("{}-{}.{:09}", file.size(), file.mtime(), file.mtime_nsec()),
        )
    }
}
