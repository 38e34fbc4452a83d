//! The request to stop a run, set by a signal and seen between steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Error;

/// Holds the number of the signal that asked the run to stop, or 0. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicUsize>);

impl StopFlag {
    /// A flag that nothing has set yet.
    pub fn new() -> Self {
        StopFlag::default()
    }

    /// Asks the run to stop after the step it is in; `signal` decides its exit code.
    pub fn request(&self, signal: i32) {
        self.0
            .store(signal.unsigned_abs() as usize, Ordering::SeqCst);
    }

    /// The signal that asked to stop.
    pub fn requested(&self) -> Option<i32> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }

    /// Ends what writes nothing, once a signal asked to stop.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn check(&self) -> Result<(), Error> {
        match self.requested() {
            Some(signal) => Err(Error::Interrupted { signal }),
            None => Ok(()),
        }
    }

    /// The cell itself, for a signal handler, which may do no more than store the number.
    pub fn cell(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::StopFlag;

    #[test]
    fn clones_see_the_same_request() {
        let flag = StopFlag::new();
        let other = flag.clone();
        assert_eq!(other.requested(), None);
        flag.request(15);
        assert_eq!(other.requested(), Some(15));
    }
}
