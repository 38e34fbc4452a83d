//! A stream of a driver, and the latest launches on it, which name a failure that is told later.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use espalier_interface::{ErrorCode, PluginError};

use crate::driver::Driver;

/// Launches that an error names.
const NAMED: usize = 4;

/// A stream.
pub struct Queue<D: Driver> {
    number: u64,
    /// The driver's.
    pub stream: D::Stream,
    /// Ops of the latest launches that nobody has waited for.
    launched: Mutex<VecDeque<String>>,
}

impl<D: Driver> Queue<D> {
    /// Stream number `number`, without work.
    pub fn new(number: u64, stream: D::Stream) -> Self {
        Queue {
            number,
            stream,
            launched: Mutex::default(),
        }
    }

    /// A launch of `op` was put on it.
    pub fn remember(&self, op: Option<String>) {
        let mut launched = self.launched();
        launched.extend(op);
        if launched.len() > NAMED {
            launched.pop_front();
        }
    }

    /// All work on it is done.
    pub fn forget(&self) {
        self.launched().clear();
    }

    /// An error of the driver or the library, which may be one of earlier work: then with the
    /// stream and the launches that may have failed.
    pub fn told(&self, error: PluginError) -> PluginError {
        if error.code != ErrorCode::DEVICE {
            return error;
        }
        let launched = self.launched();
        let named: Vec<String> = launched.iter().map(|op| format!("`{op}`")).collect();
        let before = match named.len() {
            0 => String::new(),
            _ => format!(", behind launches of {}", named.join(", ")),
        };
        PluginError::new(
            error.code,
            format!("{} (on stream {}{before})", error.message, self.number),
        )
    }

    // A panic while the lock is held leaves the names valid: every change of them is one call.
    fn launched(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.launched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
