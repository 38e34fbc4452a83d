//! What signals ask of a run, seen between its steps: to stop, or to save a checkpoint and go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::failure::{ExitClass, Failure};

/// A signal asked to stop what writes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped by signal {signal}")]
pub struct Interrupted {
    /// The signal's number.
    pub signal: i32,
}

impl Failure for Interrupted {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Signal(self.signal)
    }

    fn next_step(&self) -> String {
        "start again".to_owned()
    }
}

/// Holds the number of the signal that asked the run to stop, or 0, and how often one asked for a
/// checkpoint. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StopFlag {
    signal: Arc<AtomicUsize>,
    saves: Arc<AtomicUsize>,
}

impl StopFlag {
    /// A flag that nothing has set yet.
    pub fn new() -> Self {
        StopFlag::default()
    }

    /// Asks the run to stop after the step it is in; `signal` decides its exit code.
    pub fn request(&self, signal: i32) {
        self.signal
            .store(signal.unsigned_abs() as usize, Ordering::SeqCst);
    }

    /// Asks the run to save a checkpoint after the step it is in, and to go on.
    pub fn request_save(&self) {
        self.saves.fetch_add(1, Ordering::SeqCst);
    }

    /// The signal that asked to stop.
    pub fn requested(&self) -> Option<i32> {
        match self.signal.load(Ordering::SeqCst) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }

    /// How often a checkpoint was asked for: each of several runs remembers what it has seen.
    pub fn saves_requested(&self) -> usize {
        self.saves.load(Ordering::SeqCst)
    }

    /// Ends what writes nothing, once a signal asked to stop.
    ///
    /// # Errors
    /// [`Interrupted`], with the signal.
    pub fn check(&self) -> Result<(), Interrupted> {
        match self.requested() {
            Some(signal) => Err(Interrupted { signal }),
            None => Ok(()),
        }
    }

    /// The cell of the signal, for a signal handler, which may do no more than store the number.
    pub fn cell(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.signal)
    }
}

#[cfg(test)]
mod tests {
    use super::StopFlag;

    #[test]
    fn clones_see_the_same_requests() {
        let flag = StopFlag::new();
        let other = flag.clone();
        assert_eq!((other.requested(), other.saves_requested()), (None, 0));
        flag.request_save();
        assert_eq!((other.requested(), other.saves_requested()), (None, 1));
        flag.request(15);
        assert_eq!((other.requested(), other.saves_requested()), (Some(15), 1));
    }
}
