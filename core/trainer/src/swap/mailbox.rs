//! The folder `swap` of a run: requests and the run's answers, each a file that is written
//! atomically.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use espalier_system::failure::UsageError;
use espalier_system::files::{FileError, FileKind, read_regular, write_error, write_json};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Stage, SwapAnswer, SwapRequest};
use crate::Error;

/// The requests of a run.
#[derive(Clone, Debug)]
pub struct Mailbox {
    home: PathBuf,
}

/// The kinds of files, by the prefix of their names.
#[derive(Clone, Copy)]
enum Kind {
    SwapRequest,
    Progress,
    SwapAnswer,
}

/// A pending request with its number, or the error of reading it.
pub(crate) type Waiting = (u64, Result<SwapRequest, Error>);

impl Mailbox {
    /// The mailbox of the run in `out`.
    pub fn of(out: &Path) -> Self {
        Mailbox {
            home: out.join("swap"),
        }
    }

    /// Appends a request and returns its number.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be written.
    pub fn ask(&self, request: &SwapRequest) -> Result<u64, Error> {
        let fail = |error| Error::from(write_error(&self.home, 0, error));
        fs::create_dir_all(&self.home).map_err(fail)?;
        // A unique draft name; the link then fails if another process took the number first.
        let draft = self.home.join(format!("draft-{}.json", std::process::id()));
        let value = serde_json::to_value(request).expect("a request is plain data");
        write_json(&draft, &value)?;
        let linked = loop {
            let taken = [Kind::SwapRequest, Kind::SwapAnswer].map(|kind| self.numbers(kind));
            let number = taken.into_iter().flatten().max().unwrap_or(0) + 1;
            match fs::hard_link(&draft, self.path(Kind::SwapRequest, number)) {
                Ok(()) => break Ok(number),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => break Err(fail(error)),
            }
        };
        fs::remove_file(&draft).map_err(fail)?;
        linked
    }

    /// The run's answer to request `number`, if there is one.
    ///
    /// # Errors
    /// An answer that cannot be read.
    pub fn answer(&self, number: u64) -> Result<Option<SwapAnswer>, Error> {
        let path = self.path(Kind::SwapAnswer, number);
        if path.exists() {
            read(&path).map(Some)
        } else {
            Ok(None)
        }
    }

    /// The progress of request `number`, if the run has started it and reports it.
    pub fn stage(&self, number: u64) -> Option<Stage> {
        read(&self.path(Kind::Progress, number)).ok()
    }

    /// Whether request `number` still exists.
    pub fn holds(&self, number: u64) -> bool {
        self.path(Kind::SwapRequest, number).exists()
    }

    /// Withdraws request `number`; an active request is still answered.
    pub fn withdraw(&self, number: u64) {
        let _ = fs::remove_file(self.path(Kind::SwapRequest, number));
    }

    /// Removes all requests and answers, which are for an earlier process.
    pub(crate) fn clear(&self) -> Result<(), FileError> {
        match fs::remove_dir_all(&self.home) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(write_error(&self.home, 0, error))
            }
            _ => Ok(()),
        }
    }

    /// The first request without an answer that is due before step `step`, counted from 1.
    pub(crate) fn next(&self, step: u64) -> Option<Waiting> {
        let waiting = self.waiting().into_iter();
        let mut read = waiting.map(|number| (number, read(&self.path(Kind::SwapRequest, number))));
        read.find(|(_, request): &Waiting| match request {
            Ok(request) => request.before_step.is_none_or(|wanted| wanted <= step),
            Err(_) => true,
        })
    }

    /// Numbers of the requests without an answer, in order.
    pub(crate) fn waiting(&self) -> Vec<u64> {
        let mut requests = self.numbers(Kind::SwapRequest);
        if !requests.is_empty() {
            let answered = self.numbers(Kind::SwapAnswer);
            requests.retain(|number| !answered.contains(number));
            requests.sort_unstable();
        }
        requests
    }

    /// Answers request `number`.
    pub(crate) fn respond(&self, number: u64, answer: &SwapAnswer) -> Result<(), FileError> {
        self.write(Kind::SwapAnswer, number, answer)
    }

    /// Reports the progress of request `number`.
    pub(crate) fn report(&self, number: u64, stage: &Stage) -> Result<(), FileError> {
        self.write(Kind::Progress, number, stage)
    }

    fn write(&self, kind: Kind, number: u64, value: &impl Serialize) -> Result<(), FileError> {
        let value = serde_json::to_value(value).expect("plain data");
        write_json(&self.path(kind, number), &value)
    }

    fn path(&self, kind: Kind, number: u64) -> PathBuf {
        self.home.join(format!("{}{number:06}.json", kind.prefix()))
    }

    /// The numbers of the files of a kind; empty without a folder.
    fn numbers(&self, kind: Kind) -> Vec<u64> {
        let entries = fs::read_dir(&self.home).into_iter().flatten().flatten();
        let number = |name: &str| {
            let name = name.strip_prefix(kind.prefix())?;
            name.strip_suffix(".json")?.parse().ok()
        };
        entries
            .filter_map(|entry| number(entry.file_name().to_str()?))
            .collect()
    }
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Kind::SwapRequest => "request-",
            Kind::Progress => "progress-",
            Kind::SwapAnswer => "answer-",
        }
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let refuse = |why: String| {
        Error::Usage(UsageError {
            message: format!("{}: {why}", path.display()),
            next_step: "ask again with `host swap`".to_owned(),
        })
    };
    let text = read_regular(path, FileKind::Record)
        .map_err(|error| refuse(format!("cannot be read: {error}")))?;
    serde_json::from_slice(&text).map_err(|error| refuse(format!("makes no sense: {error}")))
}

#[cfg(test)]
mod tests;
