//! A session -> a trained adapter or model, with every step on record.

mod beginning;
mod metrics;
mod runner;
mod swaps;
mod weights;

use std::path::PathBuf;

use espalier_interface::{DType, ErrorCode, Role};

use crate::Error;
use crate::checkpoint::{self, Checkpoints, ResumeFrom};
use crate::config::ResolvedConfig;
use crate::observer::{EvalMetrics, Event, Observer};
use crate::plan::Purpose;
use crate::record;
use crate::session::Session;
use crate::stop::StopFlag;
use crate::swap::{Facts, Live, Mailbox, Surroundings, SwapRecord};
use crate::{export, measure, report};

pub use weights::load;
pub(crate) use weights::{Loading, check_saved_adapter};

use beginning::Beginning;
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
    /// Whether the run was finished already, and nothing was done.
    pub finished_before: bool,
    /// Swaps of plugins that were made.
    pub swaps: Vec<SwapRecord>,
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
            swaps: Vec::new(),
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
    let swapped = match &resumed {
        Some(beginning) => &beginning.swapped(resolved)?,
        None => resolved,
    };
    let session = Session::open_for(swapped, Purpose::Train, observer, stop);
    let trained = session.and_then(|session| {
        session.plan.check(session.plan.available())?;
        let backend = session.components.backend.identity.clone();
        let beginning = resumed.map_or_else(|| Beginning::fresh(out), Ok)?;
        train_session([resolved, swapped], session, &beginning, observer, stop)
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

/// The run of a session that fits; it was opened under the second config, the first with the swaps so far.
fn train_session(
    configs: [&ResolvedConfig; 2],
    session: Session,
    beginning: &Beginning,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<RunSummary, Error> {
    let trained = train_from(configs, session, beginning, observer, stop);
    report::conclude(beginning.directory.path(), observer);
    trained
}

/// The run in a directory that is claimed.
fn train_from(
    [resolved, swapped]: [&ResolvedConfig; 2],
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
        services,
    } = session;
    let data = data.ok_or_else(|| Error::Usage {
        message: "no rows were given".to_owned(),
        next_step: "name their files with --data FILE".to_owned(),
    })?;
    let facts = Facts::of(&plan);
    let loading = Loading {
        config: swapped.config(),
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
    let around = Surroundings {
        model: &model,
        services,
        observer,
        stop,
    };
    let progress = beginning.progress();
    let mut runner = Runner {
        config,
        observer,
        stop,
        live: Live {
            executor,
            components,
            resolved: swapped.clone(),
            facts,
            around,
        },
        data: &data,
        base: model.path().display().to_string(),
        run: circumstances,
        run_json: directory.file("run.json"),
        swaps: beginning.swaps.clone(),
        later_swaps: beginning.later_swaps.clone().into(),
        mailbox: Mailbox::of(directory.path()),
        checkpoints: Checkpoints::of(directory.path()),
        metrics,
        saved: (progress.step > 0).then_some(progress.step),
        progress,
        rate,
        peak_host_bytes: 0,
    };
    runner.put_on_record()?;
    let trained = runner.train();
    runner.answer_the_rest();
    let live = &runner.live;
    trained.map_err(|error| error.naming(Role::BACKEND.0, &live.components.backend.identity))?;
    // The last to be written: it is what tells a finished run from one to go on with.
    let saved = match live.adapter(&runner.base) {
        Some((adapter, sites, base)) => {
            export::adapter(&live.executor, adapter, sites, base, directory.path())?
        }
        None => {
            let dtype = stored_dtype(model.config());
            export::model(&live.executor, &model, dtype, directory.path())?
        }
    };
    observer.observe(&Event::Saved(&saved));
    let swaps = runner.swaps.0.into_iter().map(|swap| swap.record);
    let progress = runner.progress;
    Ok(RunSummary {
        steps: progress.step,
        last_loss: progress.last_loss,
        eval_before: progress.eval_before,
        eval_after: progress.eval_after,
        finished_before: false,
        swaps: swaps.collect(),
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
