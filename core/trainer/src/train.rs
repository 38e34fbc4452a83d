//! A session -> a trained adapter or model, with every step on record.

mod metrics;
mod runner;
mod weights;

use std::path::{Path, PathBuf};

use espalier_interface::{DType, Role};

use crate::Error;
use crate::config::ResolvedConfig;
use crate::files::{self, Continue, RunDirectory};
use crate::observer::{EvalMetrics, Event, Observer};
use crate::params::Training;
use crate::record;
use crate::session::Session;
use crate::stop::StopFlag;
use crate::{export, measure};

pub use weights::load;

use metrics::Metrics;
use runner::Runner;

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

/// The dtype in which a fully trained model is written: the one its config names, f32 otherwise.
fn stored_dtype(config: &serde_json::Value) -> DType {
    let named = config.get("dtype").or_else(|| config.get("torch_dtype"));
    match named.and_then(serde_json::Value::as_str) {
        Some("bfloat16") => DType::BF16,
        Some("float16") => DType::F16,
        _ => DType::F32,
    }
}
