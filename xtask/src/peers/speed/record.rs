//! Timed runs -> `results.json`, written after each run, so that a stopped comparison keeps them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::inputs::Inputs;
use super::machine::Machine;
use super::summary::Summary;
use super::timed_run::TimedRun;
use super::{SpeedOptions, UNCOUNTED_STEPS};

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
    pub fn new(out: &Path, options: &SpeedOptions, machine: &Machine, inputs: &Inputs) -> Self {
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
                "prompt": options.prompt,
                "backend": options.backend.map(|backend| backend.to_string()),
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
