//! Launches, waits and moves of an executor -> their sums so far.

use std::sync::{Mutex, PoisonError};

use espalier_interface::op::{OpFlops, OpTraffic};
use espalier_plan::plan::LaunchCost;

use super::window::{Numbers, Window};

/// What the kernels of forward and backward passes were given so far, the host's waits, and the
/// bytes that were brought for them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceWork {
    /// Launches of forward and backward passes.
    pub launched: LaunchCost,
    /// Waits of the host for a stream.
    pub host_waits: u64,
    /// Bytes that units fetched from host memory: weights, optimizer state, saved activations.
    pub fetched_bytes: u64,
    /// Bytes of weights that other ranks sent.
    pub gathered_bytes: u64,
}

impl DeviceWork {
    /// The work since `before`.
    pub fn since(&self, before: DeviceWork) -> DeviceWork {
        let (now, earlier) = (self.launched, before.launched);
        DeviceWork {
            launched: LaunchCost {
                launches: now.launches - earlier.launches,
                flops: now.flops - earlier.flops,
                bytes: now.bytes - earlier.bytes,
            },
            host_waits: self.host_waits - before.host_waits,
            fetched_bytes: self.fetched_bytes - before.fetched_bytes,
            gathered_bytes: self.gathered_bytes - before.gathered_bytes,
        }
    }

    /// The work of both.
    pub fn and(self, other: DeviceWork) -> DeviceWork {
        DeviceWork {
            launched: self.launched.and(other.launched),
            host_waits: self.host_waits + other.host_waits,
            fetched_bytes: self.fetched_bytes + other.fetched_bytes,
            gathered_bytes: self.gathered_bytes + other.gathered_bytes,
        }
    }
}

/// The cost of one launch by its tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallCost {
    pub(super) flops: OpFlops,
    pub(super) traffic: OpTraffic,
}

impl CallCost {
    /// A launch for `window` of a micro-batch.
    fn of(&self, numbers: &Numbers, window: Window) -> LaunchCost {
        LaunchCost::of_launch(
            (self.flops, self.traffic),
            [window.tokens as f64, numbers.pairs as f64],
        )
    }
}

/// Adds up work from any thread.
#[derive(Debug, Default)]
pub(super) struct WorkCounter(Mutex<DeviceWork>);

impl WorkCounter {
    pub(super) fn launched(&self, cost: &CallCost, numbers: &Numbers, window: Window) {
        self.change(|work| work.launched = work.launched.and(cost.of(numbers, window)));
    }

    pub(super) fn waited(&self) {
        self.change(|work| work.host_waits += 1);
    }

    pub(super) fn fetched(&self, bytes: u64) {
        self.change(|work| work.fetched_bytes += bytes);
    }

    pub(super) fn gathered(&self, bytes: u64) {
        self.change(|work| work.gathered_bytes += bytes);
    }

    /// The work so far.
    pub(super) fn so_far(&self) -> DeviceWork {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Nothing panics while the lock is held.
    fn change(&self, change: impl FnOnce(&mut DeviceWork)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
