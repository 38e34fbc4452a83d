//! One step or one evaluation at a time, each put on record and shown.

use std::time::Instant;

use super::metrics::Metrics;
use crate::config::Config;
use crate::data::Schedule;
use crate::executor::Executor;
use crate::observer::{EvalMetrics, Event, Observer, StepMetrics};
use crate::plan::Flops;
use crate::{Error, memory, step};

/// A run in progress.
pub(super) struct Runner<'a> {
    pub config: &'a Config,
    pub observer: &'a dyn Observer,
    pub executor: &'a Executor,
    pub metrics: Metrics,
    /// Operations a second of the device's own matrix product.
    pub rate: f64,
    pub flops: Flops,
    pub peak_host_bytes: u64,
}

impl Runner<'_> {
    /// Does step `index` and returns its loss.
    pub(super) fn step(&mut self, rows: &Schedule, index: u64, total: u64) -> Result<f64, Error> {
        let begin = Instant::now();
        let batch = rows.step(index);
        let (optim, seed) = (&self.config.optim, self.config.run.seed);
        let outcome = step::train(self.executor, optim, &batch, [index, total], seed)?;
        let step_secs = begin.elapsed().as_secs_f64();
        self.peak_host_bytes = self.peak_host_bytes.max(memory::resident_bytes());
        let tokens: usize = batch
            .micro_batches
            .iter()
            .map(|micro| micro.tokens.len())
            .sum();
        let flops: u64 = batch
            .micro_batches
            .iter()
            .map(|m| self.flops.micro_batch(m))
            .sum();
        let metrics = StepMetrics {
            step: index + 1,
            loss: outcome.loss,
            grad_norm: outcome.grad_norm,
            learning_rate: outcome.learning_rate,
            trained_tokens: outcome.trained_tokens,
            tokens_per_sec: tokens as f64 / step_secs,
            step_secs,
            peak_host_bytes: self.peak_host_bytes,
            peak_device_bytes: 0,
            speed_of_light: Some(flops as f64 / step_secs / self.rate),
        };
        self.metrics.append(&metrics)?;
        self.observer.observe(&Event::StepFinished(&metrics));
        Ok(outcome.loss)
    }

    pub(super) fn evaluate(&mut self, rows: &Schedule, steps: u64) -> Result<EvalMetrics, Error> {
        let outcome = step::evaluate(self.executor, rows, self.config.run.seed, &mut |_| Ok(()))?;
        let metrics = EvalMetrics {
            step: steps,
            eval_loss: outcome.loss,
            eval_perplexity: outcome.loss.exp(),
            eval_token_accuracy: outcome.token_accuracy,
        };
        self.metrics.append(&metrics)?;
        self.observer.observe(&Event::Evaluated(&metrics));
        Ok(metrics)
    }
}
