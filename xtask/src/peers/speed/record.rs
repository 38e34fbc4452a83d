//! Timed runs -> `results.json`, written after each run, so that a stopped comparison keeps them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use super::case::Case;
use super::inputs::Inputs;
use super::machine::Machine;
use super::summary::{Summary, median};
use super::{Options, UNCOUNTED_STEPS};

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
    /// By glibc, told to keep what is freed.
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

/// All runs of a comparison, and what they ran on.
pub struct Record {
    path: PathBuf,
    content: Value,
    /// Which instructions the host's products used, one a dtype.
    pub instruction_sets: Vec<String>,
    /// What they ran on.
    pub machine: Machine,
    /// Date and versions, in a line.
    pub versions: String,
}

impl Record {
    /// An empty record, which is written to `out` with the first run.
    pub fn new(out: &Path, options: &Options, machine: &Machine, inputs: &Inputs) -> Self {
        let made = &inputs.made;
        let version = |(name, value): (&String, &Value)| format!("{name} {}", text(value));
        let versions: Vec<String> = made.versions.iter().map(version).collect();
        Record {
            path: out.join("results.json"),
            content: json!({
                "date": made.date,
                "versions": made.versions,
                "machine": machine,
                "model": options.model.to_string(),
                "batch": options.batch,
                "sequence": options.sequence,
                "recompute": options.recompute,
                "peer_adapters": options.peer_adapters,
                "uncounted_steps": UNCOUNTED_STEPS,
                "runs": [],
            }),
            instruction_sets: Vec::new(),
            machine: machine.clone(),
            versions: format!("{}; {}", made.date, versions.join(", ")),
        }
    }

    /// Adds a run and writes the file.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn add(&mut self, run: &TimedRun) -> Result<()> {
        if let Some(set) = &run.instruction_set
            && !self.instruction_sets.contains(set)
        {
            self.instruction_sets.push(set.clone());
        }
        let runs = self.content["runs"].as_array_mut();
        runs.expect("made as a list").push(json!(run));
        self.write()
    }

    /// Adds the lines of the table and writes the file.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn conclude(&mut self, summaries: &[Summary]) -> Result<()> {
        self.content["table"] = json!(summaries);
        self.write()
    }

    /// Where it is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.content)? + "\n";
        fs::write(&self.path, text).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// A JSON value as it is shown to people.
fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
