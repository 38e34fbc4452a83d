//! The steps of a run in sequence, with metrics, due evaluations and due checkpoints.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use espalier_config::Config;
use espalier_data::BatchSchedule;
use espalier_engine::measure::Peaks;
use espalier_engine::observer::{EvalMetrics, Event, Observer, StepMetrics};
use espalier_engine::optim;
use espalier_engine::team::Asked;
use espalier_plan::plan::WorldMemory;
use espalier_system::failure::chain;
use espalier_system::memory::Meter;
use espalier_system::stop::{Interrupted, StopFlag};
use serde_json::Value as Json;

use super::held_out_log::HeldOutLog;
use super::metrics::Metrics;
use crate::Error;
use crate::checkpoint::{self, Checkpoints, Position, Progress, Snapshot};
use crate::export::Exported;
use crate::session::RunData;
use crate::swap::{Live, Mailbox, Swap, Swaps};
use crate::train::Stopped;

/// A run in progress.
pub(super) struct Runner<'a> {
    pub config: Config,
    pub observer: &'a dyn Observer,
    pub stop: &'a StopFlag,
    /// The count of checkpoint requests that are handled.
    pub saves_seen: usize,
    /// The part that a swap can change.
    pub live: Live<'a>,
    pub data: Arc<RunData>,
    /// The model's name in saved files.
    pub base: String,
    /// The text of the chat template, where it is not the tokenizer's own.
    pub chat_template: Option<String>,
    /// The content of `run.json`, and its path.
    pub run: Json,
    pub run_json: PathBuf,
    /// The record of exported files.
    pub exported: Option<Exported>,
    /// Completed swaps, and recorded ones that must be repeated.
    pub swaps: Swaps,
    pub later_swaps: VecDeque<Swap>,
    pub mailbox: Mailbox,
    /// Writes each held-out document's loss.
    pub held_out: HeldOutLog,
    pub checkpoints: Checkpoints,
    pub metrics: Metrics,
    pub progress: Progress,
    /// The newest checkpoint, by its step.
    pub saved: Option<u64>,
    /// Operations per second of the devices' own matrix products.
    pub peaks: Peaks,
    /// Measures the run's memory.
    pub meter: Meter,
    /// The planned memory.
    pub planned: WorldMemory,
}

/// The rest of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// More steps.
    Steps,
    /// No step, and nothing else is due.
    Nothing,
}

impl Runner<'_> {
    /// Runs due tasks between two steps, then the next step, if any. A stop request ends it between
    /// the two.
    ///
    /// # Errors
    /// [`Error::Stopped`] after a signal, once a checkpoint is saved.
    pub fn advance(&mut self) -> Result<Left, Error> {
        let total = self.data.train.total_steps();
        let step = self.progress.step;
        let every = self.config.run.save_every;
        let asked_for = every.is_some_and(|every| step.is_multiple_of(every));
        if asked_for || step >= total {
            // Before the evaluation of the held-out rows, which can take long.
            self.live.team.check_finite(step)?;
        }
        match self.evaluate_if_due(total) {
            // A resumed run repeats the interrupted evaluation.
            Err(Error::Interrupted(Interrupted { signal })) => return Err(self.stopped(signal)?),
            other => other?,
        }
        self.swap_if_due(total)?;
        let asked = self.live.team.asked(self.stop, self.saves_seen)?;
        if self.progress.step < total {
            if let Some(signal) = asked.stop {
                return Err(self.stopped(signal)?);
            }
            self.save_if_requested(&asked)?;
        }
        if asked_for || self.is_best_to_keep() {
            self.save()?;
        }
        if step >= total || self.is_over() {
            self.save_last()?;
            return Ok(Left::Nothing);
        }
        let loss = self.step(total)?;
        self.progress.step += 1;
        self.progress.last_loss = Some(loss);
        Ok(Left::Steps)
    }

    /// Saves a checkpoint and prints it.
    fn stopped(&mut self, signal: i32) -> Result<Error, Error> {
        self.live.team.check_finite(self.progress.step)?;
        self.save()?;
        Ok(Error::Stopped(Stopped {
            signal,
            step: self.progress.step,
            saved: self.saved.map(|step| self.checkpoints.path(step)),
            command: None,
        }))
    }

    /// Saves a checkpoint if a signal requests it and a step is completed, and prints it.
    fn save_if_requested(&mut self, asked: &Asked) -> Result<(), Error> {
        let step = self.progress.step;
        if !asked.save || step == 0 {
            return Ok(());
        }
        self.live.team.check_finite(step)?;
        self.saves_seen = asked.saves_seen;
        let note = format!(
            "SIGUSR1 asks for a checkpoint: saved after step {step}, and the run continues"
        );
        self.save()?;
        self.observer.observe(&Event::Note(&note));
        Ok(())
    }

    /// Runs the next step and returns its loss.
    fn step(&mut self, total: u64) -> Result<f64, Error> {
        let begin = Instant::now();
        let index = self.progress.step;
        let batch = self.data.train.step(index)?;
        let (optim, seed) = (&self.config.optim, self.config.run.seed);
        let before = self.live.team.device_work();
        let outcome = self.live.team.train(optim, &batch, [index, total], seed)?;
        let step_secs = begin.elapsed().as_secs_f64();
        let work = self.live.team.device_work().since(before);
        let peak_host_bytes = self.meter.peak();
        let tokens = batch.tokens();
        let flops: u64 = batch
            .micro_batches
            .iter()
            .map(|m| self.live.facts.flops.micro_batch(m))
            .sum();
        let share_of_peak = self.share_of_peak(index + 1, flops as f64 / step_secs)?;
        let metrics = StepMetrics {
            step: index + 1,
            loss: outcome.loss,
            grad_norm: outcome.grad_norm,
            learning_rate: outcome.learning_rate,
            group_learning_rates: self.group_learning_rates([index, total]),
            trained_tokens: outcome.trained_tokens,
            tokens_per_sec: tokens as f64 / step_secs,
            step_secs,
            peak_host_bytes,
            peak_device_bytes: self.live.team.device_bytes(),
            speed_of_light: Some(share_of_peak),
            launches: work.launched.launches,
            launch_flops: work.launched.flops,
            launch_bytes: work.launched.bytes,
            host_waits: work.host_waits,
            fetched_bytes: work.fetched_bytes,
            gathered_bytes: work.gathered_bytes,
        };
        self.metrics.append(&metrics)?;
        self.observer.observe(&Event::StepFinished(&metrics));
        Ok(outcome.loss)
    }

    /// The learning rate of each group of params in a step; empty where all have the run's.
    fn group_learning_rates(&self, [index, total]: [u64; 2]) -> Vec<f64> {
        let optim = &self.config.optim;
        let groups = self.live.team.first().groups().all();
        if groups
            .iter()
            .all(|group| group.learning_rate == optim.learning_rate)
        {
            return Vec::new();
        }
        let rate = |peak| optim::scheduled(peak, optim, index, total);
        groups
            .iter()
            .map(|group| rate(group.learning_rate))
            .collect()
    }

    /// Evaluates before the first step, every `run.eval_every` steps and after the last, once each.
    fn evaluate_if_due(&mut self, total: u64) -> Result<(), Error> {
        let data = Arc::clone(&self.data);
        let Some(rows) = &data.eval else {
            return Ok(());
        };
        let step = self.progress.step;
        if self.progress.eval_before.is_none() {
            self.progress.eval_before = Some(self.evaluate(rows)?);
        }
        let every = self.config.run.eval_every;
        let due = step == total || every.is_some_and(|every| step.is_multiple_of(every));
        let last = self
            .progress
            .eval_after
            .as_ref()
            .map_or(0, |eval| eval.step);
        if due && last < step {
            let evaluated = self.evaluate(rows)?;
            self.note_held_out(&evaluated);
            self.progress.eval_after = Some(evaluated);
        }
        Ok(())
    }

    fn evaluate(&mut self, rows: &BatchSchedule) -> Result<EvalMetrics, Error> {
        let (seed, stop) = (self.config.run.seed, self.stop);
        let total = rows.total_steps();
        let outcome = self.live.team.evaluate(rows, seed, &mut |done| {
            self.observer.observe(&Event::EvalProgress { done, total });
            Ok(stop.check()?)
        })?;
        let questions = self.data.questions.as_ref();
        let answered =
            questions.map(|questions| questions.answer(&self.live.team, self.observer, stop));
        let answered = answered.transpose()?;
        let metrics = EvalMetrics {
            step: self.progress.step,
            eval_loss: outcome.loss,
            eval_perplexity: outcome.loss.exp(),
            eval_token_accuracy: outcome.token_accuracy,
            eval_exact_match: answered.as_ref().map(|answered| answered.exact.share()),
            eval_answers: answered.as_ref().map(|answered| answered.exact.asked),
            eval_samples: answered.map_or_else(Vec::new, |answered| answered.samples),
        };
        self.held_out.write(metrics.step, outcome.documents)?;
        self.metrics.append(&metrics)?;
        self.observer.observe(&Event::Evaluated(&metrics));
        Ok(metrics)
    }

    /// Saves a checkpoint, unless this step has one or no step is completed.
    fn save(&mut self) -> Result<(), Error> {
        let step = self.progress.step;
        if step == 0 || self.saved == Some(step) {
            return Ok(());
        }
        self.metrics.sync()?;
        let snapshot = Snapshot {
            team: &self.live.team,
            adapter: self.live.adapter(&self.base),
            run: &self.run,
            progress: &self.progress,
            position: Position::after(step, self.data.train.steps_per_epoch()),
            metrics: self.metrics.path(),
        };
        let path: PathBuf = checkpoint::save(&self.checkpoints, &snapshot)?;
        self.saved = Some(step);
        self.observer.observe(&Event::Saved(&path));
        self.prune(step);
        Ok(())
    }

    /// Saves the last step's checkpoint, from which a damaged export can be written again. If the
    /// write fails, the trained params are still exported.
    fn save_last(&mut self) -> Result<(), Error> {
        match self.save() {
            // Not after the loss of a rank: params can no longer be gathered.
            Err(error @ (Error::File(_) | Error::Peer(_))) if !self.live.team.has_lost() => {
                let text = format!(
                    "the last step has no checkpoint: {}; what was trained is written all the same",
                    chain(&error)
                );
                self.observer.observe(&Event::Warning(&text));
                Ok(())
            }
            saved => saved,
        }
    }

    /// Prunes the checkpoints up to `step`.
    pub fn prune(&self, step: u64) {
        let run = &self.config.run;
        let best = self.progress.best.as_ref().filter(|_| run.keep_best);
        let best = best.map(|best| best.evaluated.step);
        if let Err(error) = self.checkpoints.prune(step, run.keep_last, best) {
            let note = format!("an old checkpoint stays: {error}");
            self.observer.observe(&Event::Note(&note));
        }
    }
}
