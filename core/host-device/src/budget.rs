//! The bytes that a device's own memory holds, and their bound.

use std::sync::{Mutex, MutexGuard, PoisonError};

use espalier_interface::bytes::Bytes;

/// Bytes in use of a device's own memory, up to a bound.
#[derive(Default)]
pub struct Budget {
    /// Name of the backend, whose option `device_memory` gives the bound.
    backend: String,
    /// Most bytes, if there is a bound.
    bound: Option<u64>,
    taken: Mutex<u64>,
}

impl Budget {
    /// Nothing taken of `bound` bytes, which the option of `backend` gives; without one, all of the
    /// machine's memory.
    pub fn new(backend: &str, bound: Option<u64>) -> Self {
        Budget {
            backend: backend.to_owned(),
            bound,
            taken: Mutex::default(),
        }
    }

    /// Takes `bytes`, or says why there is no room.
    ///
    /// # Errors
    /// A sentence with the free bytes and the bound.
    pub fn take(&self, bytes: u64) -> Result<(), String> {
        let mut taken = self.lock();
        *taken = self.with(*taken, bytes)?;
        Ok(())
    }

    /// Gives back `bytes` that were taken.
    pub fn give_back(&self, bytes: u64) {
        *self.lock() -= bytes;
    }

    /// Whether there is room for `bytes` now.
    ///
    /// # Errors
    /// As [`Budget::take`].
    pub fn check(&self, bytes: u64) -> Result<(), String> {
        let taken = *self.lock();
        self.with(taken, bytes).map(drop)
    }

    /// `taken` with `bytes` more.
    fn with(&self, taken: u64, bytes: u64) -> Result<u64, String> {
        let bound = self.bound.unwrap_or(u64::MAX);
        let sum = taken.checked_add(bytes);
        sum.filter(|&sum| sum <= bound).ok_or_else(|| {
            let free = bound - taken;
            format!(
                "only {free} bytes ({}) of the {} that backend.{}.device_memory gives are free",
                Bytes(free),
                Bytes(bound),
                self.backend
            )
        })
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
