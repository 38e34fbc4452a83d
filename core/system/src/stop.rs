//! Requests by signals, checked between steps: stop, or save a checkpoint and continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::failure::{ExitClass, Failure};

/// A signal stopped a command that writes nothing.
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

/// Holds the number of the signal that requested the stop, or 0, and the count of requested
/// checkpoints. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct StopFlag {
    signal: Arc<AtomicUsize>,
    saves: Arc<AtomicUsize>,
}

impl StopFlag {
    /// A flag without requests.
    pub fn new() -> Self {
        StopFlag::default()
    }

    /// Requests a stop after the present step; `signal` sets the exit code.
    pub fn request(&self, signal: i32) {
        self.signal
            .store(signal.unsigned_abs() as usize, Ordering::SeqCst);
    }

    /// Requests a checkpoint after the present step, without a stop.
    pub fn request_save(&self) {
        self.saves.fetch_add(1, Ordering::SeqCst);
    }

    /// The signal that requested the stop.
    pub fn requested(&self) -> Option<i32> {
        match self.signal.load(Ordering::SeqCst) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }

    /// The count of requested checkpoints; each of several runs remembers the last count it
    /// handled.
    pub fn saves_requested(&self) -> usize {
        self.saves.load(Ordering::SeqCst)
    }

    /// Ends a command that writes nothing, once a signal requested a stop.
    ///
    /// # Errors
    /// [`Interrupted`], with the signal.
    pub fn check(&self) -> Result<(), Interrupted> {
        match self.requested() {
            Some(signal) => Err(Interrupted { signal }),
            None => Ok(()),
        }
    }

    /// The cell of the signal number, for a signal handler, which can only store it.
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
