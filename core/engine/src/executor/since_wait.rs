//! The work that the device was given since the host last waited for it -> words for an error that
//! the device reports later.

use std::sync::{Mutex, MutexGuard, PoisonError};

use espalier_interface::schedule::Act;

use super::Executor;
use crate::Error;

/// The first and the last of the passes and updates since the last wait, each with its unit.
#[derive(Debug, Default)]
pub(super) struct SinceWait(Mutex<Option<[Work; 2]>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    act: Act,
    unit: usize,
}

impl SinceWait {
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

    // A panic while the lock is held leaves the value whole.
    fn lock(&self) -> MutexGuard<'_, Option<[Work; 2]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executor {
    /// An error that the device reported when the host waited, with the work that it may be of. The
    /// device's own words say which op failed, as far as it knows.
    pub(super) fn reported_late(&self, error: Error) -> Error {
        let Some([first, last]) = *self.since_wait.lock() else {
            return error;
        };
        let Error::Plugin(mut failure) = error else {
            return error;
        };
        let shown = |work: Work| {
            let act = format!("{:?}", work.act).to_lowercase();
            format!("{act} of `{}`", self.program.units[work.unit].name)
        };
        let work = if first == last {
            shown(first)
        } else {
            format!("{} to {}", shown(first), shown(last))
        };
        let said = &mut failure.source.message;
        *said = format!("{said} (reported late; since the last wait the device was given: {work})");
        Error::Plugin(failure)
    }
}
