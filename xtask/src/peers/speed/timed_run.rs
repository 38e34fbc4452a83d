//! One training by the host or by the peers -> its losses, times and memory.

use std::fmt;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::UNCOUNTED_STEPS;
use super::case::Case;
use crate::median::median;

/// Who trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum Side {
    /// Our host.
    Host,
    /// transformers, PEFT, bitsandbytes and hqq.
    Peer(Allocator),
}

/// How the peers' memory is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// By glibc, set to keep freed memory.
    Tuned,
    /// By glibc's defaults.
    Installed,
}

/// One training.
#[derive(Clone, Debug, Serialize)]
pub struct TimedRun {
    #[serde(flatten)]
    pub case: Case,
    /// From 1.
    pub round: u64,
    pub side: Side,
    /// Mean loss of each step.
    pub losses: Vec<f64>,
    /// Seconds of each step, also of those that do not count.
    pub step_secs: Vec<f64>,
    /// Seconds of loading and encoding the model.
    pub load_secs: f64,
    /// Seconds from the process's start to its first step.
    pub start_secs: f64,
    /// The most resident memory of the process.
    pub peak_bytes: u64,
    /// Which instructions the host's products use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction_set: Option<String>,
}

impl TimedRun {
    /// The run, if it recorded every step.
    ///
    /// # Errors
    /// Where a step lacks its loss or its time, or a loss is not finite.
    pub fn complete(self, steps: u64) -> Result<Self> {
        let [losses, secs] = [&self.losses, &self.step_secs].map(|list| list.len() as u64);
        let what = format!("{} {} round {}", self.side, self.case, self.round);
        ensure!(
            losses == steps && secs == steps,
            "{what}: expected {steps} steps, found {losses} losses and {secs} times"
        );
        ensure!(
            self.losses.iter().all(|loss| loss.is_finite()),
            "{what}: a loss is not finite: {:?}",
            self.losses
        );
        Ok(self)
    }

    /// Seconds of a step: the median of those that count.
    pub fn median_secs(&self) -> f64 {
        median(self.step_secs[UNCOUNTED_STEPS..].to_vec())
    }

    /// A line of progress.
    pub fn line(&self, tokens: f64, rounds: u64) -> String {
        format!(
            "round {}/{rounds}  {:<9}  {:<17}  {:>9.1} tokens/s  {:>6.2} GB  loaded in {:.1} s",
            self.round,
            self.case.to_string(),
            self.side.to_string(),
            tokens / self.median_secs(),
            self.peak_bytes as f64 / 1e9,
            self.load_secs,
        )
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Host => "host",
            Side::Peer(Allocator::Tuned) => "peer",
            Side::Peer(Allocator::Installed) => "peer as installed",
        })
    }
}

impl From<Side> for String {
    fn from(side: Side) -> Self {
        side.to_string()
    }
}
