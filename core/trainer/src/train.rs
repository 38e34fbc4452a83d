//! A session -> a trained adapter or model, with every step on record.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use espalier_interface::{DType, Role};
use serde::Serialize;

use crate::Error;
use crate::config::{Config, Init, ResolvedConfig};
use crate::executor::Executor;
use crate::files::{self, Continue, RunDirectory};
use crate::load::{LoadReport, Loader, Origin};
use crate::observer::{EvalMetrics, Event, Observer, StepMetrics};
use crate::params::Training;
use crate::plan::{Flops, RunPlan};
use crate::record;
use crate::session::Session;
use crate::stop::StopFlag;
use crate::{export, measure, memory, step};

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// Steps that were done.
    pub steps: u64,
    /// Mean loss of the last step.
    pub last_loss: Option<f64>,
    /// Held-out loss before the first step.
    pub eval_before: Option<EvalMetrics>,
    /// Held-out loss after the last.
    pub eval_after: Option<EvalMetrics>,
    /// What was written: `adapter/` or `model/`.
    pub saved: PathBuf,
}

/// Trains as the config says.
///
/// # Errors
/// Whatever goes wrong, with its exit code; [`Error::Stopped`] after a signal, once everything is saved.
pub fn run(
    resolved: &ResolvedConfig,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<RunSummary, Error> {
    let config = resolved.config();
    let out = config.run.out.as_deref().ok_or_else(|| Error::Usage {
        message: "no output directory was given".to_owned(),
        next_step: "name one with --out DIR".to_owned(),
    })?;
    let session = Session::open(resolved, observer)?;
    session.plan.check(session.plan.available())?;
    let backend = session.components.backend.identity.clone();
    train_session(resolved, session, out, observer, stop)
        .map_err(|error| error.naming(Role::BACKEND.0, &backend))
}

/// The run of a session that fits.
fn train_session(
    resolved: &ResolvedConfig,
    session: Session,
    out: &Path,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<RunSummary, Error> {
    let config = resolved.config();
    let directory = RunDirectory::claim(out, Continue::Refuse)?;
    observer.observe(&Event::RunStarted(&session.summary()));
    let rate = measure::gemm_rate(session.plan.device.as_ref(), session.plan.dtypes.compute)?;
    let circumstances = record::describe(resolved, &session, rate)?;
    let Session {
        directory: model,
        components,
        data,
        plan,
        ..
    } = session;
    let data = data.ok_or_else(|| Error::Usage {
        message: "no rows were given".to_owned(),
        next_step: "name their files with --data FILE".to_owned(),
    })?;
    let (flops, training) = (plan.flops, plan.training);
    let sites = plan.sites.clone();
    let (executor, _) = load(config, &model, &components, plan, observer)?;
    // Only now: a checkpoint that is refused leaves the directory free for the next attempt.
    files::write_json(&directory.file("run.json"), &circumstances)?;
    let mut runner = Runner {
        config,
        observer,
        executor: &executor,
        metrics: Metrics::create(&directory.file("metrics.jsonl"))?,
        rate,
        flops,
        peak_host_bytes: 0,
    };
    let evaluate = |runner: &mut Runner<'_>, steps: u64| {
        data.eval
            .as_ref()
            .map(|rows| runner.evaluate(rows, steps))
            .transpose()
    };
    let eval_before = evaluate(&mut runner, 0)?;
    let total = data.train.total_steps();
    let (mut done, mut last_loss, mut eval_after) = (0, None, None);
    while done < total && stop.requested().is_none() {
        last_loss = Some(runner.step(&data.train, done, total)?);
        done += 1;
        let due = config.run.eval_every.is_some_and(|every| done % every == 0);
        if due || done == total {
            eval_after = evaluate(&mut runner, done)?;
        }
    }
    let saved = match (training, &components.adapter) {
        (Training::Adapter, Some(adapter)) => {
            let base = model.path().display().to_string();
            export::adapter(
                &executor,
                adapter.plugin.as_ref(),
                &sites,
                &base,
                directory.path(),
            )?
        }
        _ => export::model(
            &executor,
            &model,
            stored_dtype(model.config()),
            directory.path(),
        )?,
    };
    observer.observe(&Event::Saved(&saved));
    if let Some(signal) = stop.requested().filter(|_| done < total) {
        return Err(Error::Stopped {
            signal,
            step: done,
            saved: Some(saved),
        });
    }
    Ok(RunSummary {
        steps: done,
        last_loss,
        eval_before,
        eval_after,
        saved,
    })
}

/// Allocates a plan's storage, loads every param and returns the executor.
///
/// # Errors
/// What [`Loader::load`] gives; an adapter that is not the one the options describe.
pub fn load(
    config: &Config,
    model: &crate::files::ModelDirectory,
    components: &crate::select::Components,
    plan: RunPlan,
    observer: &dyn Observer,
) -> Result<(Executor, LoadReport), Error> {
    let storage = plan.storage()?;
    let random = config.model.init == Init::Random;
    let tensors = if random { None } else { Some(model.tensors()?) };
    let saved = components.saved_adapter.as_ref();
    if let Some(saved) = saved {
        check_saved_adapter(saved, &plan)?;
    }
    let report = {
        let mut loader = Loader::new(plan.device.as_ref(), &storage, config.run.seed);
        let total = plan.params.len() as u64;
        for (index, param) in plan.params.iter().enumerate() {
            let origin = match (param.kind, &tensors, saved) {
                (Some(_), Some(tensors), _) => Origin::Files(tensors),
                (None, _, Some(saved)) => Origin::Files(saved.tensors()),
                _ => Origin::Random,
            };
            loader.load(index, param, origin, plan.quantizers.get(&index))?;
            let done = index as u64 + 1;
            observer.observe(&Event::LoadProgress {
                param: &param.name,
                done,
                total,
            });
        }
        loader.report()
    };
    Ok((Executor::new(plan, storage), report))
}

/// Every tensor of a saved adapter must be one of the plan's.
fn check_saved_adapter(
    saved: &crate::files::AdapterDirectory,
    plan: &RunPlan,
) -> Result<(), Error> {
    let known: std::collections::HashSet<&str> = plan
        .params
        .iter()
        .filter(|p| p.kind.is_none())
        .map(|p| p.name.as_str())
        .collect();
    let stranger = saved
        .tensors()
        .entries()
        .iter()
        .find(|e| !known.contains(e.name.as_str()));
    match stranger {
        None => Ok(()),
        Some(entry) => Err(Error::Checkpoint {
            path: saved.path().to_owned(),
            message: format!(
                "tensor `{}` belongs to no site of this model that its adapter_config.json targets",
                entry.name
            ),
        }),
    }
}

/// The dtype in which a fully trained model is written: the one its config names, f32 otherwise.
fn stored_dtype(config: &serde_json::Value) -> DType {
    let named = config.get("dtype").or_else(|| config.get("torch_dtype"));
    match named.and_then(serde_json::Value::as_str) {
        Some("bfloat16") => DType::BF16,
        Some("float16") => DType::F16,
        _ => DType::F32,
    }
}

/// A run in progress.
struct Runner<'a> {
    config: &'a Config,
    observer: &'a dyn Observer,
    executor: &'a Executor,
    metrics: Metrics,
    /// Operations a second of the device's own matrix product.
    rate: f64,
    flops: Flops,
    peak_host_bytes: u64,
}

impl Runner<'_> {
    /// Does step `index` and returns its loss.
    fn step(&mut self, rows: &crate::data::Schedule, index: u64, total: u64) -> Result<f64, Error> {
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

    fn evaluate(&mut self, rows: &crate::data::Schedule, steps: u64) -> Result<EvalMetrics, Error> {
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

/// The file `metrics.jsonl`: a line is there whole or not at all.
struct Metrics {
    path: PathBuf,
    file: File,
}

impl Metrics {
    fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|source| Error::Write {
            path: path.to_owned(),
            source,
        })?;
        Ok(Metrics {
            path: path.to_owned(),
            file,
        })
    }

    fn append(&mut self, line: &impl Serialize) -> Result<(), Error> {
        let mut text = serde_json::to_string(line).expect("metrics are plain data");
        text.push('\n');
        self.file
            .write_all(text.as_bytes())
            .map_err(|source| Error::Write {
                path: self.path.clone(),
                source,
            })
    }
}
