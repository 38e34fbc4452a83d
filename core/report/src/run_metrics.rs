//! The file `metrics.jsonl` -> the metrics of a run: its steps and its evaluations.

use std::io::{BufRead, BufReader};
use std::path::Path;

use espalier_engine::observer::StepMetrics;
use espalier_engine::sample_answer::SampleAnswer;
use espalier_system::files::{FileError, FileKind, open_regular};
use espalier_trainer::swap::SwapRecord;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::Error;

/// The metrics in the order of steps; missing numbers are NaN.
#[derive(Clone, Debug, Default)]
pub struct RunMetrics {
    /// One entry a step.
    pub steps: Vec<StepMetrics>,
    /// One entry an evaluation.
    pub evals: Vec<EvalPoint>,
    /// The kept answers of evaluations, by step.
    pub samples: Vec<(u64, Vec<SampleAnswer>)>,
    /// Swaps of plugins, including refused ones.
    pub swaps: Vec<SwapRecord>,
    /// Lines that are no metrics, such as the last one of a process that was killed.
    pub unreadable: u64,
}

/// The evaluation of the held-out rows after `step` steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EvalPoint {
    /// Steps completed before it.
    pub step: u64,
    /// Mean loss over the trained tokens; NaN where the file has `null`.
    pub loss: Option<f64>,
    /// `exp(loss)`.
    pub perplexity: Option<f64>,
    /// Share of the trained tokens that the model ranks first.
    pub token_accuracy: Option<f64>,
    /// Share of the generated answers that equal those in the rows.
    pub exact_match: Option<f64>,
}

impl RunMetrics {
    /// Reads `path`, line by line; a missing file counts as empty.
    ///
    /// # Errors
    /// [`FileError::Read`] where the operating system refuses.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let fail = |source| {
            let path = path.to_owned();
            Error::from(FileError::Read { path, source })
        };
        let file = match open_regular(path, FileKind::Measurements) {
            Ok((file, _)) => file,
            Err(error) if error.is_not_found() => return Ok(RunMetrics::default()),
            Err(error) => return Err(fail(error.into())),
        };
        let mut metrics = RunMetrics::default();
        for line in BufReader::new(file).split(b'\n') {
            metrics.take(&line.map_err(fail)?);
        }
        Ok(metrics)
    }

    fn take(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let parsed = parse(line);
        let step = parsed.as_ref().and_then(|line| line.get("step")?.as_u64());
        match (parsed, step) {
            (Some(line), Some(step)) if line.get("loss").is_some() => self.take_step(step, &line),
            (Some(mut line), Some(_)) if line.get("swap").is_some() => {
                match serde_json::from_value(line["swap"].take()) {
                    Ok(swap) => self.swaps.push(swap),
                    Err(_) => self.unreadable += 1,
                }
            }
            (Some(line), Some(step)) => self.take_eval(step, &line),
            _ => self.unreadable += 1,
        }
    }

    /// A repeated step comes from a run resumed before it: the later steps are dropped.
    fn take_step(&mut self, step: u64, line: &Json) {
        if self.steps.last().is_some_and(|last| last.step >= step) {
            self.steps.retain(|done| done.step < step);
            self.evals.retain(|eval| eval.step < step);
            self.samples.retain(|(done, _)| *done < step);
            self.swaps.retain(|swap| swap.step < step);
        }
        let counted = |key: &str| number(line, key).unwrap_or(0.0);
        let number = |key: &str| number(line, key).unwrap_or(f64::NAN);
        let count = |key: &str| line.get(key).and_then(Json::as_u64).unwrap_or_default();
        let numbers = |key: &str| {
            let list = line.get(key).and_then(Json::as_array).into_iter().flatten();
            list.map(|number| number.as_f64().unwrap_or(f64::NAN))
                .collect()
        };
        self.steps.push(StepMetrics {
            step,
            loss: number("loss"),
            grad_norm: number("grad_norm"),
            learning_rate: number("learning_rate"),
            group_learning_rates: numbers("group_learning_rates"),
            trained_tokens: count("trained_tokens"),
            tokens_per_sec: number("tokens_per_sec"),
            step_secs: number("step_secs"),
            peak_host_bytes: count("peak_host_bytes"),
            peak_device_bytes: count("peak_device_bytes"),
            speed_of_light: line.get("speed_of_light").and_then(Json::as_f64),
            // Earlier versions did not count the devices' work.
            launches: count("launches"),
            launch_flops: counted("launch_flops"),
            launch_bytes: counted("launch_bytes"),
            host_waits: count("host_waits"),
            fetched_bytes: count("fetched_bytes"),
            gathered_bytes: count("gathered_bytes"),
        });
    }

    /// Lines of one step are merged.
    fn take_eval(&mut self, step: u64, line: &Json) {
        let last = self.evals.last().filter(|last| last.step == step).copied();
        if last.is_some() {
            self.evals.pop();
        }
        let last = last.unwrap_or_default();
        let loss = line.get("eval_loss");
        let loss = loss.map(|_| number(line, "eval_loss").unwrap_or(f64::NAN));
        self.evals.push(EvalPoint {
            step,
            loss: loss.or(last.loss),
            perplexity: number(line, "eval_perplexity").or(last.perplexity),
            token_accuracy: number(line, "eval_token_accuracy").or(last.token_accuracy),
            exact_match: number(line, "eval_exact_match").or(last.exact_match),
        });
        let samples = line.get("eval_samples");
        let samples = samples.and_then(|samples| Vec::deserialize(samples).ok());
        if let Some(samples) = samples {
            self.samples.retain(|(done, _)| *done < step);
            self.samples.push((step, samples));
        }
    }

    /// Trained tokens of all steps.
    pub fn trained_tokens(&self) -> u64 {
        self.steps.iter().map(|step| step.trained_tokens).sum()
    }

    /// Tokens of all steps, trained or not.
    pub fn tokens(&self) -> u64 {
        let tokens = |step: &StepMetrics| (step.tokens_per_sec * step.step_secs).round() as u64;
        self.steps.iter().map(tokens).sum()
    }

    /// The time of all steps together, in seconds.
    pub fn secs(&self) -> f64 {
        let secs = self.steps.iter().map(|step| step.step_secs);
        secs.filter(|secs| secs.is_finite()).sum()
    }

    /// Peak memory in bytes: of the host, of the device.
    pub fn peak_bytes(&self) -> [u64; 2] {
        let peak = |of: fn(&StepMetrics) -> u64| self.steps.iter().map(of).max().unwrap_or(0);
        [peak(|s| s.peak_host_bytes), peak(|s| s.peak_device_bytes)]
    }
}

/// A line as an object. Python writes `NaN` and `Infinity`, which are not JSON: they count as
/// unset.
fn parse(line: &[u8]) -> Option<Json> {
    let text = std::str::from_utf8(line).ok()?;
    let parsed: Json = serde_json::from_str(text)
        .or_else(|_| {
            let text = text.replace("-Infinity", "null");
            serde_json::from_str(&text.replace("Infinity", "null").replace("NaN", "null"))
        })
        .ok()?;
    parsed.is_object().then_some(parsed)
}

/// A number that is finite.
fn number(line: &Json, key: &str) -> Option<f64> {
    let value = line.get(key)?.as_f64()?;
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests;
