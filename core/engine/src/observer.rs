//! The events of a run, for a progress bar, a log or a test.

use std::path::Path;

use espalier_interface::bytes::Bytes;
use espalier_plan::plan::WorldMemory;
use serde::{Deserialize, Deserializer, Serialize};

use crate::exact_match::ExactMatch;
use crate::sample_answer::SampleAnswer;

/// Receives the events of a run. It is called on the run's own thread, so it should be quick.
pub trait Observer: Send + Sync {
    /// Handles `event`.
    fn observe(&self, event: &Event<'_>);
}

/// Ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _: &Event<'_>) {}
}

impl<O: Observer + ?Sized> Observer for &O {
    fn observe(&self, event: &Event<'_>) {
        (**self).observe(event);
    }
}

impl<O: Observer + ?Sized> Observer for Box<O> {
    fn observe(&self, event: &Event<'_>) {
        (**self).observe(event);
    }
}

/// Passes every event on to all of these, in their order.
#[derive(Clone, Copy)]
pub struct All<'a>(pub &'a [&'a dyn Observer]);

impl Observer for All<'_> {
    fn observe(&self, event: &Event<'_>) {
        for observer in self.0 {
            observer.observe(event);
        }
    }
}

/// An event.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The plan is made; loading begins.
    RunStarted(&'a PlanSummary),
    /// Rows were read.
    ReadProgress {
        /// Rows so far.
        rows: u64,
        /// Bytes of the files so far.
        bytes: u64,
        /// Bytes of all files.
        total_bytes: u64,
    },
    /// A weight was loaded.
    LoadProgress {
        /// The weight's name.
        param: &'a str,
        /// Weights placed so far.
        done: u64,
        /// Weights in all.
        total: u64,
        /// Bytes that they take, as they are stored.
        bytes: u64,
        /// Bytes that all will take.
        total_bytes: u64,
    },
    /// Calibration begins, or a unit of the base was calibrated: its weights are packed with
    /// statistics of rows.
    CalibrationProgress {
        /// The name of the first unit, or of the one that is done.
        unit: &'a str,
        /// Units done.
        done: u64,
        /// Units from the first one with a weight to encode.
        total: u64,
    },
    /// A tensor of a new model directory is written.
    WriteProgress {
        /// The tensor's name.
        tensor: &'a str,
        /// Tensors written so far.
        done: u64,
        /// Tensors in all.
        total: u64,
    },
    /// An optimizer step is done.
    StepFinished(&'a StepMetrics),
    /// An evaluation made a step.
    EvalProgress {
        /// Steps done.
        done: u64,
        /// Steps in all.
        total: u64,
    },
    /// A held-out row was answered.
    AnswerProgress {
        /// Rows answered.
        done: u64,
        /// Rows in all.
        total: u64,
    },
    /// The effect of a quantizer option on a site was measured.
    OptionMeasured {
        /// The site.
        site: &'a str,
        /// The option.
        option: &'a str,
        /// Measurements done in this process.
        done: u64,
        /// Measurements that it has to do in all.
        total: u64,
    },
    /// The held-out rows were evaluated.
    Evaluated(&'a EvalMetrics),
    /// Something was written completely.
    Saved(&'a Path),
    /// A run ended, in any way; its output directory is complete.
    RunEnded(&'a Path),
    /// Something the user should know, in a line.
    Note(&'a str),
    /// Something the user should act on, in a line; shown even in quiet mode.
    Warning(&'a str),
}

/// The plan in a few numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanSummary {
    /// The model's directory or name.
    pub model: String,
    /// The components chosen, one a role.
    pub plugins: Vec<String>,
    /// Parameters in all.
    pub num_params: u64,
    /// Parameters that are trained.
    pub num_trained_params: u64,
    /// Optimizer steps of the run.
    pub total_steps: u64,
    /// Planned peak of a process's host memory, all its ranks together.
    pub peak_host_bytes: Bytes,
    /// Planned peak of each rank's device memory; 0 where the device is the host.
    pub peak_device_bytes: Bytes,
    /// What ranks, processes and machines hold.
    pub memory: WorldMemory,
}

/// One step, as a line of `metrics.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// The step, counted from 1.
    pub step: u64,
    /// Mean loss over the step's trained tokens.
    pub loss: f64,
    /// Norm of the whole gradient before clipping.
    pub grad_norm: f64,
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// That of each group of params, in the order of `param_groups` in `run.json`. Empty where all
    /// have `learning_rate`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_learning_rates: Vec<f64>,
    /// Tokens of the step that bear loss.
    pub trained_tokens: u64,
    /// Tokens of the step, trained or not, per second.
    pub tokens_per_sec: f64,
    /// The step's time in seconds.
    pub step_secs: f64,
    /// Most host memory the process has held.
    pub peak_host_bytes: u64,
    /// Most memory that a rank of the process has held on its device; 0 where it is the host.
    pub peak_device_bytes: u64,
    /// The model's FLOPs, without recompute, over what the devices could have done in the step's
    /// time at their measured GEMM rate. Unset where that is not known.
    pub speed_of_light: Option<f64>,
    /// Kernel launches of forward and backward passes, of the ranks of this process.
    #[serde(default)]
    pub launches: u64,
    /// Floating-point operations of their matrix products, recompute included.
    #[serde(default)]
    pub launch_flops: f64,
    /// Bytes of operands that they read and write.
    #[serde(default)]
    pub launch_bytes: f64,
    /// Waits of the host for a device.
    #[serde(default)]
    pub host_waits: u64,
    /// Bytes that devices fetched from host memory: weights, optimizer state, saved activations.
    #[serde(default)]
    pub fetched_bytes: u64,
    /// Bytes of weights that ranks got from others.
    #[serde(default)]
    pub gathered_bytes: u64,
}

/// One evaluation, as a line of `metrics.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvalMetrics {
    /// Steps done before it.
    pub step: u64,
    /// Mean loss over the held-out trained tokens.
    #[serde(deserialize_with = "number_or_null")]
    pub eval_loss: f64,
    /// `exp(eval_loss)`.
    #[serde(deserialize_with = "number_or_null")]
    pub eval_perplexity: f64,
    /// Share of those tokens that the model ranks first.
    pub eval_token_accuracy: f64,
    /// Share of the answered rows that were answered word for word; unset where none were asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_exact_match: Option<f64>,
    /// Rows that were asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_answers: Option<u64>,
    /// The first of them with their answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eval_samples: Vec<SampleAnswer>,
}

impl EvalMetrics {
    /// Right answers and all, where any were asked.
    pub fn exact_match(&self) -> Option<ExactMatch> {
        let (share, asked) = (self.eval_exact_match?, self.eval_answers?);
        Some(ExactMatch {
            right: (share * asked as f64).round() as u64,
            asked,
        })
    }
}

/// JSON has no number that is not finite; one is written as `null`.
pub fn number_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
