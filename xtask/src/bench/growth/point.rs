//! One training -> its size, time and memory.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::UNCOUNTED_STEPS;
use crate::bench::random_model::Shape;
use crate::median::median;
use crate::metrics;
use crate::workspace::run;

/// What all trainings have in common.
pub struct Setting {
    /// The host's program.
    pub host: PathBuf,
    /// Where inputs and runs go.
    pub folder: PathBuf,
    /// The root of the workspace.
    pub root: PathBuf,
    /// What is trained.
    pub plugins: String,
    /// Number type of products.
    pub dtype: String,
    /// Steps of a run.
    pub steps: usize,
}

/// The measurement of a training.
pub struct Point {
    /// Parameters, adapters with them.
    pub params: f64,
    /// Tokens of a step.
    pub tokens: f64,
    /// Seconds of a step, the median.
    pub secs: f64,
    /// Operations of a step.
    pub flops: f64,
    /// Share of the rate of products that was measured in the same run.
    pub share_of_peak: f64,
    /// Most bytes that the run held.
    pub peak_bytes: f64,
    /// Bytes that the plan predicted.
    pub planned_bytes: f64,
    /// The processor.
    pub machine: String,
}

impl Setting {
    /// Trains a model of this shape on rows of `tokens` tokens, one a step.
    ///
    /// # Errors
    /// Where the run fails or its files lack a number.
    pub fn run(&self, shape: &Shape, tokens: u64) -> Result<Point> {
        shape.make_inputs(&self.folder, self.steps as u64, tokens)?;
        let out = self.folder.join("run");
        let mut host = Command::new(&self.host);
        host.current_dir(&self.root)
            .args(["train", "--quiet", "--plugins", &self.plugins, "--model"])
            .arg(self.folder.join("model"))
            .arg("--data")
            .arg(self.folder.join("rows.jsonl"))
            .arg("--out")
            .arg(&out);
        for setting in [
            "model.init=random".to_owned(),
            "model.recompute=none".to_owned(),
            "data.shuffle=false".to_owned(),
            "data.batch_size=1".to_owned(),
            "data.micro_batch=1".to_owned(),
            format!("data.max_seq_len={tokens}"),
            format!("model.compute={}", self.dtype),
            format!("run.max_steps={}", self.steps),
        ] {
            host.args(["--set", &setting]);
        }
        run(host.stdout(Stdio::null()))?;
        let counted = |key| -> Result<f64> {
            let numbers = metrics::numbers(&out, key)?;
            Ok(median(numbers.into_iter().skip(UNCOUNTED_STEPS).collect()))
        };
        let record: Value = serde_json::from_str(&fs::read_to_string(out.join("run.json"))?)?;
        let number = |pointer: &str| {
            let found = record.pointer(pointer).and_then(Value::as_f64);
            found.with_context(|| format!("run.json has no number {pointer}"))
        };
        let point = Point {
            params: number("/model/num_params")?,
            tokens: tokens as f64,
            secs: counted("step_secs")?,
            flops: counted("launch_flops")?,
            share_of_peak: counted("speed_of_light")?,
            peak_bytes: counted("peak_host_bytes")?,
            planned_bytes: planned(&record).context("run.json has no planned memory")?,
            machine: format!(
                "{}, {}",
                record["machine"]["description"]
                    .as_str()
                    .unwrap_or_default(),
                record["instruction_set"].as_str().unwrap_or_default()
            ),
        };
        println!(
            "{:>7.1} million parameters, {tokens:>5} tokens: {:.4} s a step, {:.1} MB",
            point.params / 1e6,
            point.secs,
            point.peak_bytes / 1e6
        );
        Ok(point)
    }
}

/// The bytes of all categories of the plan.
fn planned(record: &Value) -> Option<f64> {
    let bytes = record["memory"].as_object()?.values().map(Value::as_f64);
    bytes.sum()
}
