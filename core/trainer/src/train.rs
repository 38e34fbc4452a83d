//! A session -> a trained adapter or model, with every step on record.

mod beginning;
mod metrics;
mod runner;
mod weights;

use std::path::PathBuf;

use espalier_interface::{DType, ErrorCode, Role};

use crate::Error;
use crate::checkpoint::{self, Checkpoints, ResumeFrom};
use crate::config::ResolvedConfig;
use crate::files;
use crate::observer::{EvalMetrics, Event, Observer};
use crate::plan::Purpose;
use crate::record;
use crate::session::Session;
use crate::stop::StopFlag;
use crate::{export, measure, report};

pub(crate) use weights::check_saved_adapter;
pub use weights::load;

use beginning::Beginning;
use metrics::Metrics;
use runner::Runner;
use weights::Loading;

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
    /// Whether the run was finished already, and nothing was done.
    pub finished_before: bool,
    /// What was written: `adapter/` or `model/`.
    pub saved: PathBuf,
}

impl RunSummary {
    fn finished_before(saved: PathBuf) -> Self {
        RunSummary {
            steps: 0,
            last_loss: None,
            eval_before: None,
            eval_after: None,
            finished_before: true,
            saved,
        }
    }
}

/// Trains as the config says, in a directory that holds no run yet.
///
/// # Errors
/// Whatever goes wrong, with its exit code; [`Error::Stopped`] after a signal, once a checkpoint is saved.
pub fn run(
    resolved: &ResolvedConfig,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<RunSummary, Error> {
    start(resolved, None, observer, stop)
}

/// Goes on with the run in the output directory: what comes out is what [`run`] alone would have given.
/// Without a checkpoint it starts over; a finished run it leaves as it is.
///
/// # Errors
/// As [`run`]; [`Error::Resume`] for a checkpoint that is damaged, or that another run has saved.
pub fn resume(
    resolved: &ResolvedConfig,
    from: ResumeFrom,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<RunSummary, Error> {
    start(resolved, Some(from), observer, stop)
}

fn start(
    resolved: &ResolvedConfig,
    from: Option<ResumeFrom>,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<RunSummary, Error> {
    let config = resolved.config();
    let out = config.run.out.as_deref().ok_or_else(|| Error::Usage {
        message: "no output directory was given".to_owned(),
        next_step: "name one with --out DIR".to_owned(),
    })?;
    let resumed = from.map(|from| Beginning::resumed(out, from, observer));
    let resumed = resumed.transpose()?;
    if let Some(beginning) = &resumed
        && let Some(saved) = beginning.directory.finished()
    {
        beginning.check_finished(config)?;
        // Whoever finished it may have died before its report.
        report::conclude(out, observer);
        return Ok(RunSummary::finished_before(saved));
    }
    let session = Session::open_for(resolved, Purpose::Train, observer, stop);
    let trained = session.and_then(|session| {
        session.plan.check(session.plan.available())?;
        let backend = session.components.backend.identity.clone();
        let beginning = resumed.map_or_else(|| Beginning::fresh(out), Ok)?;
        train_session(resolved, session, &beginning, observer, stop)
            .map_err(|error| error.naming(Role::BACKEND.0, &backend))
    });
    trained.map_err(|error| stopped(error, stop, &Checkpoints::of(out)))
}

/// What a run is told that a plugin or the loading of weights gave up because it was asked to.
fn stopped(error: Error, stop: &StopFlag, checkpoints: &Checkpoints) -> Error {
    let cancelled = match &error {
        Error::Interrupted { .. } => true,
        Error::Plugin { source, .. } => source.code == ErrorCode::CANCELLED,
        _ => false,
    };
    let newest = || {
        checkpoints
            .steps()
            .ok()
            .and_then(|steps| steps.last().copied())
    };
    match stop.requested().filter(|_| cancelled) {
        Some(signal) => Error::Stopped {
            signal,
            step: newest().unwrap_or(0),
            saved: newest().map(|step| checkpoints.path(step)),
        },
        None => error,
    }
}

/// The run of a session that fits.
fn train_session(
    resolved: &ResolvedConfig,
    session: Session,
    beginning: &Beginning,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<RunSummary, Error> {
    let trained = train_from(resolved, session, beginning, observer, stop);
    report::conclude(beginning.directory.path(), observer);
    trained
}

/// The run in a directory that is claimed.
fn train_from(
    resolved: &ResolvedConfig,
    session: Session,
    beginning: &Beginning,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<RunSummary, Error> {
    let config = resolved.config();
    let directory = &beginning.directory;
    observer.observe(&Event::RunStarted(&session.summary()));
    let rate = measure::gemm_rate(session.plan.device.as_ref(), session.plan.dtypes.compute)?;
    let mut circumstances = record::describe(resolved, &session, rate)?;
    beginning.check(&mut circumstances, observer)?;
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
    let (flops, sites) = (plan.flops, plan.sites.clone());
    let loading = Loading {
        config,
        model: &model,
        components: &components,
        observer,
        stop,
    };
    let (executor, _) = match &beginning.checkpoint {
        None => loading.all(plan)?,
        Some(checkpoint) => {
            let (executor, report) = loading.frozen(plan)?;
            checkpoint::restore(checkpoint, &executor)?;
            (executor, report)
        }
    };
    // Only now: what is refused leaves the directory free for the next attempt.
    let metrics = directory.file("metrics.jsonl");
    let metrics = match &beginning.checkpoint {
        None => Metrics::create(&metrics)?,
        Some(checkpoint) => Metrics::go_on(&metrics, &checkpoint.metrics())?,
    };
    files::write_json(&directory.file("run.json"), &circumstances)?;
    let base = model.path().display().to_string();
    let adapter = components.adapter.as_ref();
    let adapter = adapter.map(|chosen| (chosen, sites.as_slice(), base.as_str()));
    let progress = beginning.progress();
    let mut runner = Runner {
        config,
        observer,
        stop,
        executor: &executor,
        data: &data,
        adapter,
        run: &circumstances,
        checkpoints: Checkpoints::of(directory.path()),
        metrics,
        saved: (progress.step > 0).then_some(progress.step),
        progress,
        rate,
        flops,
        peak_host_bytes: 0,
    };
    runner.train()?;
    // The last to be written: it is what tells a finished run from one to go on with.
    let saved = match adapter {
        Some((adapter, sites, base)) => {
            export::adapter(&executor, adapter, sites, base, directory.path())?
        }
        None => {
            let dtype = stored_dtype(model.config());
            export::model(&executor, &model, dtype, directory.path())?
        }
    };
    observer.observe(&Event::Saved(&saved));
    let progress = runner.progress;
    Ok(RunSummary {
        steps: progress.step,
        last_loss: progress.last_loss,
        eval_before: progress.eval_before,
        eval_after: progress.eval_after,
        finished_before: false,
        saved,
    })
}

/// The dtype in which a model's weights are written where nothing else says so: the one its config names, f32 otherwise.
pub(crate) fn stored_dtype(config: &serde_json::Value) -> DType {
    let named = config.get("dtype").or_else(|| config.get("torch_dtype"));
    match named.and_then(serde_json::Value::as_str) {
        Some("bfloat16") => DType::BF16,
        Some("float16") => DType::F16,
        _ => DType::F32,
    }
}
