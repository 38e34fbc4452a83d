//! A session that fits -> its run: ranks joined, weights in their places, its directory begun.

use std::sync::Arc;

use espalier_config::ResolvedConfig;
use espalier_engine::measure::{self as speeds, Cause};
use espalier_engine::observer::{Event, Observer};
use espalier_engine::team::Team;
use espalier_interface::Device;
use espalier_plan::plan::WorldMemory;
use espalier_system::memory::Meter;
use espalier_system::stop::StopFlag;
use serde_json::json;

use super::base_measure::{BaseMeasure, LoadedBase};
use super::beginning::Beginning;
use super::held_out_log::HeldOutLog;
use super::metrics::Metrics;
use super::ready::Ready;
use super::runner::Runner;
use crate::checkpoint::{self, Checkpoints};
use crate::session::{RunData, Session};
use crate::swap::{Facts, Live, Mailbox, RunContext};
use crate::weights::{Loading, join_ranks};
use crate::{Error, record};

/// What a run begins with.
pub(super) struct Begin<'a, 'b> {
    /// The config of the run.
    pub resolved: &'b ResolvedConfig,
    /// The same with the swaps so far: the session was opened under it.
    pub swapped: ResolvedConfig,
    /// The session.
    pub ready: Ready,
    /// The directory, which is claimed.
    pub beginning: &'b Beginning,
    /// Measures the base, where that is asked for.
    pub measure: Option<&'b dyn BaseMeasure>,
    /// Knows the run's memory.
    pub meter: Meter,
    pub observer: &'a dyn Observer,
    pub stop: &'a StopFlag,
}

impl<'a> Begin<'a, '_> {
    /// The run before its next step.
    ///
    /// # Errors
    /// A rank that does not come, weights that cannot be loaded, a checkpoint that cannot be
    /// restored, a directory that cannot be written.
    pub fn run(self) -> Result<Runner<'a>, Error> {
        let Begin {
            resolved,
            swapped,
            ready,
            beginning,
            measure,
            meter,
            observer,
            stop,
        } = self;
        let directory = &beginning.directory;
        let Ready {
            session,
            outline: mut circumstances,
            wanted,
        } = ready;
        observer.observe(&Event::RunStarted(&session.summary()));
        if let Some(idle) = session.idle_ranks(swapped.config()) {
            observer.observe(&Event::Note(&idle.to_string()));
        }
        let planned = WorldMemory::of(&session.run.plan);
        let rate = product_rate(&session)?;
        record::complete(&mut circumstances, &session, rate)?;
        beginning.check(&mut circumstances, observer)?;
        let progress = beginning.progress();
        let mut peaks = beginning.peaks();
        peaks.push(progress.step + 1, rate, Cause::Start);
        circumstances["machine"]["peak_rates"] = json!(peaks);
        let Session {
            directory: model,
            components,
            data,
            run,
            others,
            collectives,
            services,
            ..
        } = session;
        let data = data.expect("a run without rows is refused before it begins");
        let facts = Facts::of(&run.plan);
        let loading = Loading {
            config: swapped.config(),
            model: &model,
            components: &components,
            observer,
            stop,
            inspector: measure.and_then(|measure| measure.inspector(&run.plan, services)),
        };
        let runs = std::iter::once(run).chain(others).collect();
        let roll = (&circumstances, progress.step);
        let ranks = join_ranks(runs, &collectives, swapped.config(), stop, roll)?;
        let (executors, report) = loading.load_ranks(ranks, &|param| wanted.holds(param))?;
        circumstances["decode_checks"] = json!(report.decode_checks);
        let team = Team::new(executors);
        // A checkpoint of all of a model leaves nothing of its base.
        let base_is_whole = beginning.checkpoint.is_none() || components.adapter.is_some();
        if let (Some(measure), Some(rows), true) = (measure, &data.eval, base_is_whole) {
            let base = LoadedBase {
                executor: team.only("a comparison")?,
                rows,
                seed: resolved.config().run.seed,
                services,
                observer,
                stop,
            };
            measure.measure(&base, report)?;
        }
        if let Some(checkpoint) = &beginning.checkpoint {
            team.each(|executor| checkpoint::restore(checkpoint, executor))?;
        }
        // Only now: what is refused leaves the directory free for the next attempt.
        let metrics = metrics(beginning, &data)?;
        let mut runner = Runner {
            config: resolved.config().clone(),
            observer,
            stop,
            saves_seen: 0,
            base: model.path().display().to_string(),
            live: Live {
                team,
                components,
                resolved: swapped,
                facts,
                around: RunContext {
                    model,
                    services,
                    observer,
                    stop,
                },
            },
            data: Arc::new(data),
            run: circumstances,
            run_json: directory.file("run.json"),
            exported: beginning.exported(),
            swaps: beginning.swaps.clone(),
            later_swaps: beginning.later_swaps.clone().into(),
            mailbox: Mailbox::of(directory.path()),
            held_out: match measure {
                Some(_) => HeldOutLog::of(directory.path()),
                None => HeldOutLog::of_run_alone(directory.path()),
            },
            checkpoints: Checkpoints::of(directory.home()),
            metrics,
            saved: (progress.step > 0).then_some(progress.step),
            progress,
            peaks,
            meter,
            planned,
        };
        if let Some(saved) = runner.saved {
            // Whoever saved it may have died before this.
            runner.prune(saved);
        }
        runner.put_on_record()?;
        Ok(runner)
    }
}

/// The rate of products of all ranks, measured together, in operations a second.
fn product_rate(session: &Session) -> Result<f64, Error> {
    let plan = &session.run.plan;
    let runs = std::iter::once(&session.run).chain(&session.others);
    let devices: Vec<&dyn Device> = runs.map(|run| run.device.as_ref()).collect();
    let rate = speeds::gemm_rate_of_all(&devices, plan.dtypes.compute)?;
    Ok(rate * f64::from(plan.demand.world.processes))
}

/// The run's `metrics.jsonl`, as its checkpoint has it.
fn metrics(beginning: &Beginning, data: &RunData) -> Result<Metrics, Error> {
    let path = beginning.directory.file("metrics.jsonl");
    match &beginning.checkpoint {
        None => Ok(Metrics::create(&path)?.headed(data.train.dataset().counts())),
        Some(checkpoint) => Ok(Metrics::go_on(&path, &checkpoint.metrics())?),
    }
}
