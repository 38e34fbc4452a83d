//! One training -> its size, time and memory.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::GrowthOptions;
use crate::bench::random_model::{Shape, Training, counted};
use crate::median::median;

/// What all trainings have in common.
pub struct Setting<'a> {
    /// The host's program.
    pub host: PathBuf,
    /// Where inputs and runs go.
    pub folder: PathBuf,
    /// The root of the workspace.
    pub root: PathBuf,
    /// What is trained, in which number type, and for how long.
    pub options: &'a GrowthOptions,
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

impl Setting<'_> {
    /// Trains a model of this shape on rows of `tokens` tokens, one a step.
    ///
    /// # Errors
    /// Where the run fails or its files lack a number.
    pub fn run(&self, shape: &Shape, tokens: u64) -> Result<Point> {
        let options = self.options;
        shape.make_inputs(&self.folder, options.steps as u64, tokens)?;
        let training = Training {
            folder: &self.folder,
            plugins: &options.plugins,
            dtype: &options.dtype,
            steps: options.steps,
            batch: 1,
            sequence: tokens,
        };
        let mut host = Command::new(&self.host);
        host.current_dir(&self.root);
        let out = training.run(host, &[])?;
        let of_step = |key| counted(&out, key).map(median);
        let record: Value = serde_json::from_str(&fs::read_to_string(out.join("run.json"))?)?;
        let number = |pointer: &str| {
            let found = record.pointer(pointer).and_then(Value::as_f64);
            found.with_context(|| format!("run.json has no number {pointer}"))
        };
        let point = Point {
            params: number("/model/num_params")?,
            tokens: tokens as f64,
            secs: of_step("step_secs")?,
            flops: of_step("launch_flops")?,
            share_of_peak: of_step("speed_of_light")?,
            peak_bytes: of_step("peak_host_bytes")?,
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
