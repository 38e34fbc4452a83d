//! Measurements of a run's devices -> the peak rate that its steps are compared with.

use serde::{Deserialize, Serialize};

/// How often products are timed again in a run. After that, a step above the peak sets the peak.
const MOST_AGAIN: usize = 3;

/// Where a peak comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Products were timed before the first step of a process.
    Start,
    /// Products were timed after a swap to another backend.
    Swap,
    /// Products were timed again, because a step had exceeded the peak.
    Again,
    /// A step exceeded the timed products too, and sets the peak itself.
    Step,
}

/// A peak rate, valid from a step on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeakRate {
    /// The first step that is compared with it.
    pub from_step: u64,
    /// Floating-point operations a second of all ranks.
    pub flops_per_sec: f64,
    /// Where it comes from.
    pub cause: Cause,
}

/// All peaks of a run, oldest first; never empty in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Peaks(pub Vec<PeakRate>);

impl Peaks {
    /// The newest peak rate; 0 where there is none.
    pub fn rate(&self) -> f64 {
        self.0.last().map_or(0.0, |peak| peak.flops_per_sec)
    }

    /// Adds a peak.
    pub fn push(&mut self, from_step: u64, flops_per_sec: f64, cause: Cause) {
        self.0.push(PeakRate {
            from_step,
            flops_per_sec,
            cause,
        });
    }

    /// The share of the peak that step `step` reached with `flops_per_sec`. Above the peak,
    /// products are timed again by `again`, at most three times in a run. Where even that rate is
    /// lower, the step sets the peak.
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
