//! The work that the device was given since the host last waited for it -> words for an error that
//! the device reports later.

use std::sync::{Mutex, MutexGuard, PoisonError};

use espalier_interface::schedule::Act;
use espalier_interface::{ErrorCode, PluginError, Result as PluginResult};
use espalier_registry::PluginFailure;

use crate::error::{Error, Result};

/// The first and the last of the passes and updates since the last wait, each with its unit.
#[derive(Debug, Default)]
pub(super) struct SinceWait {
    /// The names of the units.
    units: Vec<String>,
    work: Mutex<Option<[Work; 2]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    act: Act,
    unit: usize,
}

impl SinceWait {
    /// No work yet, of units with these names.
    pub(super) fn new(units: impl Iterator<Item = String>) -> Self {
        SinceWait {
            units: units.collect(),
            work: Mutex::default(),
        }
    }

    /// The compute stream is about to be given work.
    pub(super) fn given(&self, act: Act, unit: usize) {
        let work = Work { act, unit };
        let mut held = self.lock();
        let first = held.map_or(work, |[first, _]| first);
        *held = Some([first, work]);
    }

    /// All of it is done.
    pub(super) fn done(&self) {
        *self.lock() = None;
    }

    /// The result of the call `callback` to the device. Any call may report work before it, and
    /// then says `DEVICE`: other errors are of the call.
    pub(super) fn during<T>(&self, callback: &str, made: PluginResult<T>) -> Result<T> {
        made.map_err(|error| self.failed(callback, error))
    }

    /// As [`SinceWait::during`], of a call that failed.
    pub(super) fn failed(&self, callback: &str, error: PluginError) -> Error {
        match error.code {
            ErrorCode::DEVICE => self.reported_late(callback, error),
            _ => PluginFailure::new("backend", callback, error).into(),
        }
    }

    /// As [`SinceWait::during`], of a call that waits: every error may be of work before it.
    pub(super) fn waiting<T>(&self, callback: &str, made: PluginResult<T>) -> Result<T> {
        made.map_err(|error| self.reported_late(callback, error))
    }

    /// An error that the call `callback` reported, with the work that it may be of. The device's
    /// own words say which op failed, as far as it knows.
    fn reported_late(&self, callback: &str, mut error: PluginError) -> Error {
        if let Some([first, last]) = *self.lock() {
            let work = if first == last {
                self.shown(first)
            } else {
                format!("{} to {}", self.shown(first), self.shown(last))
            };
            error.message +=
                &format!(" (reported late; since the last wait the device was given: {work})");
        }
        PluginFailure::new("backend", callback, error).into()
    }

    fn shown(&self, Work { act, unit }: Work) -> String {
        let act = format!("{act:?}").to_lowercase();
        let name = self.units.get(unit).map_or("", String::as_str);
        format!("{act} of `{name}`")
    }

    // A panic while the lock is held leaves the value whole.
    fn lock(&self) -> MutexGuard<'_, Option<[Work; 2]>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(error: Error) -> String {
        match error {
            Error::Plugin(failure) => failure.source.message,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn an_error_that_may_be_of_earlier_work_names_it() {
        let units = ["layer 0", "layer 1"].map(str::to_owned);
        let since = SinceWait::new(units.into_iter());
        let failed = |code| Err::<(), _>(PluginError::new(code, "it failed"));
        let told = |made: Result<()>| message(made.expect_err("it failed"));
        let before = told(since.during("launch", failed(ErrorCode::DEVICE)));
        assert_eq!(before, "it failed");
        since.given(Act::Forward, 0);
        since.given(Act::Backward, 1);
        let work = "it failed (reported late; since the last wait the device was given: \
                    forward of `layer 0` to backward of `layer 1`)";
        assert_eq!(told(since.during("copy", failed(ErrorCode::DEVICE))), work);
        assert_eq!(
            told(since.waiting("query", failed(ErrorCode::INVALID))),
            work
        );
        // The call's own.
        let own = told(since.during("launch", failed(ErrorCode::INVALID)));
        assert_eq!(own, "it failed");
        since.done();
        let after = told(since.waiting("download", failed(ErrorCode::DEVICE)));
        assert_eq!(after, "it failed");
    }
}
