//! Measurements of a run's devices -> the peak that the shares of its steps are of, and how it is known.

use serde::{Deserialize, Serialize};

/// Times that products are timed again in a run; after that a step that beats the peak is the peak.
const MOST_AGAIN: usize = 3;

/// Where a peak comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Products were timed before the first step of a process.
    Start,
    /// Products were timed after a swap to another backend.
    Swap,
    /// Products were timed again, because a step had beaten the peak.
    Again,
    /// A step beat the products too: it is the peak itself.
    Step,
}

/// A peak, from a step on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeakRate {
    /// The first step whose share is of it.
    pub from_step: u64,
    /// Floating-point operations a second of all ranks.
    pub flops_per_sec: f64,
    /// Where it comes from.
    pub cause: Cause,
}

/// All peaks of a run, in the order in which they came about; never empty in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Peaks(pub Vec<PeakRate>);

impl Peaks {
    /// The newest.
    pub fn rate(&self) -> f64 {
        self.0.last().map_or(0.0, |peak| peak.flops_per_sec)
    }

    /// Adds one.
    pub fn push(&mut self, from_step: u64, flops_per_sec: f64, cause: Cause) {
        self.0.push(PeakRate {
            from_step,
            flops_per_sec,
            cause,
        });
    }

    /// The share that `flops_per_sec`, which step `step` did, has of the peak. Where it is more, products are timed again, at
    /// most three times in a run, and `again` gives their rate; where even that is less, the step itself is the peak.
    pub fn share(
        &mut self,
        step: u64,
        flops_per_sec: f64,
        again: impl FnOnce() -> Option<f64>,
    ) -> f64 {
        if flops_per_sec > self.rate() {
            let times = self.0.iter().filter(|peak| peak.cause == Cause::Again);
            let measured = if times.count() < MOST_AGAIN {
                again()
            } else {
                None
            };
            if let Some(rate) = measured.filter(|rate| *rate > self.rate()) {
                self.push(step, rate, Cause::Again);
            }
            if flops_per_sec > self.rate() {
                self.push(step, flops_per_sec, Cause::Step);
            }
        }
        flops_per_sec / self.rate()
    }
}
