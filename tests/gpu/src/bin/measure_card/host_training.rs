//! Trainings by the host on random weights, and the numbers of their steps.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use espalier_tests_gpu::Llama;
use serde_json::Value as Json;

use crate::setting::Setting;

/// Characters of a failed run's last words that are kept.
const MOST_WORDS: usize = 1500;

/// A training on the inputs that a shape has made.
pub struct HostTraining<'a> {
    /// The folder of the inputs, and of the run.
    pub folder: &'a Path,
    /// The model.
    pub model: Llama,
    /// Number type of products and activations.
    pub compute: &'a str,
    /// Steps.
    pub steps: u64,
    /// Rows of a step.
    pub batch: u64,
    /// Rows of a step that are computed at once, by each rank.
    pub micro_batch: u64,
    /// Tokens of a row.
    pub sequence: u64,
}

impl HostTraining<'_> {
    /// Writes the inputs.
    ///
    /// # Errors
    /// Where the folder cannot be written.
    pub fn make_inputs(&self) -> Result<()> {
        let rows = self.steps * self.batch;
        self.model.make_inputs(self.folder, rows, self.sequence)
    }

    /// The command of a run, whose results go into the folder `name`, with further words.
    ///
    /// # Errors
    /// Where the host is missing.
    pub fn command(&self, setting: &Setting, name: &str, words: &[&str]) -> Result<Command> {
        let mut host = setting.program("host")?;
        host.args(["train", "--quiet", "--model"])
            .arg(self.folder.join("model"))
            .arg("--data")
            .arg(self.folder.join("rows.jsonl"))
            .arg("--out")
            .arg(self.folder.join(name))
            .args(words);
        for value in [
            "model.init=random".to_owned(),
            "data.shuffle=false".to_owned(),
            format!("data.batch_size={}", self.batch),
            format!("data.micro_batch={}", self.micro_batch),
            format!("data.max_seq_len={}", self.sequence),
            format!("model.compute={}", self.compute),
            format!("run.max_steps={}", self.steps),
        ] {
            host.args(["--set", &value]);
        }
        Ok(host)
    }

    /// Trains, and returns the run's folder.
    ///
    /// # Errors
    /// Where the run fails, with its last words.
    pub fn run(&self, setting: &Setting, name: &str, words: &[&str]) -> Result<PathBuf> {
        succeed(&mut self.command(setting, name, words)?)?;
        Ok(self.folder.join(name))
    }
}

/// Runs a command.
///
/// # Errors
/// Where it fails, with its last words.
pub fn succeed(command: &mut Command) -> Result<()> {
    let output = command.stdout(Stdio::null()).output();
    let output = output.context("the host cannot be started")?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let words: Vec<char> = words.trim().chars().collect();
    let from = words.len().saturating_sub(MOST_WORDS);
    bail!(
        "a training ended with {}: {}",
        output.status,
        words[from..].iter().collect::<String>()
    )
}

/// The numbers of `key` of a run's steps.
///
/// # Errors
/// Where the run's metrics have none.
pub fn numbers(run: &Path, key: &str) -> Result<Vec<f64>> {
    let path = run.join("metrics.jsonl");
    let text = fs::read_to_string(&path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().map(serde_json::from_str::<Json>);
    let lines = lines.collect::<std::result::Result<Vec<_>, _>>();
    let lines = lines.with_context(|| format!("{} is not JSON", path.display()))?;
    let found: Vec<f64> = lines.iter().filter_map(|line| line[key].as_f64()).collect();
    ensure!(!found.is_empty(), "{} has no `{key}`", path.display());
    Ok(found)
}
