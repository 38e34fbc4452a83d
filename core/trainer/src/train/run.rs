//! A config -> a run that is open: driven step by step, then brought to its end.

use std::path::Path;
use std::sync::Arc;

use espalier_compile::params::Param;
use espalier_config::ResolvedConfig;
use espalier_engine::measure as speeds;
use espalier_engine::measure::Cause;
use espalier_engine::observer::{Event, Observer};
use espalier_engine::ranks::world_of_run;
use espalier_engine::team::Team;
use espalier_interface::{Device, ErrorCode, Role};
use espalier_plan::plan::{Purpose, WorldMemory};
use espalier_registry::{PluginFailure, PluginIdentity, answer};
use espalier_system::failure::UsageError;
use espalier_system::files::RunDirectory;
use espalier_system::memory::Meter;
use espalier_system::stop::StopFlag;
use serde_json::{Value as Json, json};

use super::base_measure::{BaseMeasure, LoadedBase};
use super::beginning::Beginning;
use super::held_out_log::HeldOutLog;
use super::metrics::Metrics;
use super::runner::{Left, Runner};
use super::{RunMemory, RunSummary, stored_dtype};
use crate::checkpoint::{self, Checkpoint, Checkpoints, ResumeFrom};
use crate::export::Export;
use crate::session::{ProcessContext, Session};
use crate::swap::{Facts, Live, Mailbox, RunContext};
use crate::train::Stopped;
use crate::weights::{Loading, join_ranks};
use crate::{Error, export, record};

/// What a run is opened with.
pub struct Opening<'a> {
    pub resolved: &'a ResolvedConfig,
    /// Where it goes on, if it is to.
    pub from: Option<ResumeFrom>,
    /// What it shares with other runs of the process, if there are any.
    pub process_context: Option<&'a ProcessContext>,
    /// Knows its memory from theirs.
    pub meter: Meter,
    pub observer: &'a dyn Observer,
    pub stop: &'a StopFlag,
}

/// A run that was opened.
pub enum Opened<'a> {
    /// It had come to its end before.
    Finished(Box<RunSummary>),
    Run(Box<Run<'a>>),
}

/// A run in its directory, its weights loaded.
pub struct Run<'a> {
    runner: Runner<'a>,
    /// Holds the directory.
    beginning: Beginning,
    stop: &'a StopFlag,
}

impl<'a> Run<'a> {
    /// Opens the run: plans it, claims its directory, loads its weights. Where `measure` is given, it measures the base,
    /// and every held-out document's loss is written.
    ///
    /// # Errors
    /// Whatever goes wrong. Until the first number of the run is on record, the directory is left free for the next attempt.
    pub fn open(
        opening: Opening<'a>,
        measure: Option<&dyn BaseMeasure>,
    ) -> Result<Opened<'a>, Error> {
        let out = opening.resolved.config().run.out.as_deref();
        let out = out.ok_or_else(|| {
            Error::Usage(UsageError {
                message: "no output directory was given".to_owned(),
                next_step: "name one with --out DIR".to_owned(),
            })
        })?;
        let stop = opening.stop;
        Run::open_in(out, opening, measure)
            .map_err(|error| stopped(error, stop, &Checkpoints::of(out)))
    }

    fn open_in(
        out: &Path,
        opening: Opening<'a>,
        measure: Option<&dyn BaseMeasure>,
    ) -> Result<Opened<'a>, Error> {
        let Opening {
            resolved,
            from,
            process_context,
            meter,
            observer,
            stop,
        } = opening;
        let saves_seen = stop.saves_requested();
        let world = world_of_run(&resolved.config().run)?;
        if from.is_none() && world.writes() {
            RunDirectory::refuse_taken(out)?;
        }
        let resumed = from.map(|from| Beginning::resumed(out, world, from, observer));
        let resumed = resumed.transpose()?;
        let begun = match &resumed {
            Some(beginning) => beginning.begun(resolved, observer)?,
            None => resolved.clone(),
        };
        let resolved = &begun;
        if let Some(beginning) = &resumed
            && let Some(saved) = beginning.finished.clone()
        {
            beginning.check_finished(resolved.config())?;
            // Whoever finished it may have died before its report.
            if world.writes() {
                observer.observe(&Event::RunEnded(out));
            }
            return Ok(Opened::Finished(Box::new(RunSummary::finished_before(
                saved,
            ))));
        }
        let swapped = match &resumed {
            Some(beginning) => beginning.swapped(resolved)?,
            None => resolved.clone(),
        };
        let session = match process_context {
            None => Session::open_for(&swapped, Purpose::Train, observer, stop)?,
            Some(process_context) => {
                let among = (process_context, &meter);
                Session::open_among(&swapped, Purpose::Train, among, observer, stop)?
            }
        };
        match measure {
            Some(measure) => measure.check(&session.run.plan, session.services)?,
            None => session.run.plan.check(session.run.plan.available())?,
        }
        let checkpoint = resumed.as_ref().and_then(|one| one.checkpoint.as_ref());
        let ready = Ready {
            wanted: Wanted::after(checkpoint),
            outline: record::outline(resolved, &session)?,
            session,
        };
        ready.check(&swapped, observer, stop)?;
        // A run that has begun goes on with what it has on record; arms have patterns in common, which were checked before.
        if from.is_none() && measure.is_none() {
            ready.session.check_patterns(&swapped)?;
        }
        if let Some(beginning) = &resumed {
            beginning.check_outline(&ready.outline)?;
        }
        let backend = ready.session.components.backend.identity.clone();
        let beginning = resumed.map_or_else(|| Beginning::fresh(out, world), Ok)?;
        let begun = begin(
            (resolved, swapped),
            ready,
            &beginning,
            measure,
            (meter, observer, stop),
        );
        match begun {
            Ok(runner) => Ok(Opened::Run(Box::new(Run {
                // What was asked for while it was loaded is still to be done.
                runner: Runner {
                    saves_seen,
                    ..runner
                },
                beginning,
                stop,
            }))),
            Err(error) => {
                observer.observe(&Event::RunEnded(beginning.directory.path()));
                Err(error.naming(Role::BACKEND.0, &backend).in_progress())
            }
        }
    }

    /// Does what is due, and the next step.
    ///
    /// # Errors
    /// [`Error::Stopped`] after a signal, once a checkpoint is saved; whatever ends the run.
    pub fn advance(&mut self) -> Result<Left, Error> {
        let advanced = self.runner.advance();
        advanced.map_err(|error| error.naming(Role::BACKEND.0, self.backend()).in_progress())
    }

    /// Does all that is left.
    ///
    /// # Errors
    /// As [`Run::advance`].
    pub fn do_the_rest(&mut self) -> Result<(), Error> {
        while self.advance()? == Left::Steps {}
        Ok(())
    }

    /// Steps that are done.
    pub fn steps_done(&self) -> u64 {
        self.runner.progress.step
    }

    /// What knows the run's memory from that of others.
    pub fn meter(&mut self) -> &mut Meter {
        &mut self.runner.meter
    }

    /// Brings the run to its end: saves what was trained, where `trained` says that all went well.
    ///
    /// # Errors
    /// Those of `trained`; what cannot be written.
    pub fn end(mut self, trained: Result<(), Error>) -> Result<RunSummary, Error> {
        self.runner.answer_the_rest();
        let ended = trained.and_then(|()| self.save());
        let out = self.beginning.directory.path();
        if let Err(error) = &ended {
            self.runner.live.team.give_up(error);
        }
        self.runner.observer.observe(&Event::RunEnded(out));
        let checkpoints = &self.runner.checkpoints;
        ended.map_err(|error| stopped(error.in_progress(), self.stop, checkpoints))
    }

    /// Writes what was trained: beside its place, then its hashes into `run.json`, then into its place. The last to be
    /// written, it tells a finished run from one to go on with.
    fn save(&mut self) -> Result<RunSummary, Error> {
        let written = self.write()?;
        self.runner.exported = written.exported()?;
        self.runner.put_on_record()?;
        let saved = written.commit()?;
        let runner = &self.runner;
        runner.observer.observe(&Event::Saved(&saved));
        let swaps = runner.swaps.0.iter().map(|swap| swap.record.clone());
        let progress = &runner.progress;
        Ok(RunSummary {
            steps: progress.step,
            last_loss: progress.last_loss,
            eval_before: progress.eval_before.clone(),
            eval_after: progress.eval_after.clone(),
            finished_before: false,
            swaps: swaps.collect(),
            counts: runner.data.train.dataset().counts(),
            memory: Some(RunMemory {
                planned: runner.planned,
                held_bytes: runner.meter.most(),
            }),
            saved,
        })
    }

    /// Writes what was trained beside its place.
    fn write(&self) -> Result<Export, Error> {
        let (runner, live) = (&self.runner, &self.runner.live);
        let out = self.beginning.directory.path();
        match live.adapter(&runner.base) {
            Some((adapter, sites, base)) => export::adapter(&live.team, adapter, sites, base, out),
            None => {
                let model = &live.around.model;
                export::model(&live.team, model, stored_dtype(model.config()), out)
            }
        }
    }

    fn backend(&self) -> &PluginIdentity {
        &self.runner.live.components.backend.identity
    }
}

/// A session that fits, before anything of it is written or a weight is read.
struct Ready {
    session: Session,
    /// What `run.json` will hold, as far as it is known.
    outline: Json,
    /// What is read of the model's and the adapter's files.
    wanted: Wanted,
}

/// The params that a run loads from a model's and an adapter's files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// All of them.
    All,
    /// Those that a checkpoint does not hold.
    Frozen,
}

impl Wanted {
    fn after(checkpoint: Option<&Checkpoint>) -> Self {
        match checkpoint {
            None => Wanted::All,
            Some(_) => Wanted::Frozen,
        }
    }

    fn holds(self, param: &Param) -> bool {
        self == Wanted::All || !param.trainable
    }
}

impl Ready {
    /// Refuses a run that would come upon something that it cannot do once its weights are loaded.
    ///
    /// # Errors
    /// No rows; files without what is to be read of them; an adapter that cannot say how it is to be saved.
    fn check(
        &self,
        config: &ResolvedConfig,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<(), Error> {
        let Session {
            directory,
            components,
            data,
            run,
            ..
        } = &self.session;
        if data.is_none() {
            return Err(Error::Usage(UsageError {
                message: "no rows were given".to_owned(),
                next_step: "name their files with --data FILE".to_owned(),
            }));
        }
        let loading = Loading::of(config.config(), (directory, components), observer, stop);
        loading.check(&run.plan, &|param| self.wanted.holds(param))?;
        if let Some(adapter) = &components.adapter {
            let base = directory.path().display().to_string();
            answer::saved_config(adapter, &run.plan.sites, &base)?;
        }
        Ok(())
    }
}

/// The run of a session that fits, in a directory that is claimed; the session was opened under the second config, which is
/// the first with the swaps so far.
fn begin<'a>(
    (resolved, swapped): (&ResolvedConfig, ResolvedConfig),
    ready: Ready,
    beginning: &Beginning,
    measure: Option<&dyn BaseMeasure>,
    (meter, observer, stop): (Meter, &'a dyn Observer, &'a StopFlag),
) -> Result<Runner<'a>, Error> {
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
    let runs = std::iter::once(&session.run).chain(&session.others);
    let devices: Vec<&dyn Device> = runs.map(|run| run.device.as_ref()).collect();
    let rate = speeds::gemm_rate_of_all(&devices, session.run.plan.dtypes.compute)?;
    let rate = rate * f64::from(session.run.plan.demand.world.processes);
    record::complete(&mut circumstances, &session, rate)?;
    beginning.check(&mut circumstances, observer)?;
    let mut peaks = beginning.peaks();
    peaks.push(beginning.progress().step + 1, rate, Cause::Start);
    circumstances["machine"]["peak_rates"] =
        serde_json::to_value(&peaks).expect("rates are plain data");
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
    let mut runs = vec![run];
    runs.extend(others);
    let roll = (&circumstances, beginning.progress().step);
    let ranks = join_ranks(runs, &collectives, swapped.config(), stop, roll)?;
    let (executors, report) = loading.load_ranks(ranks, &|param| wanted.holds(param))?;
    circumstances["decode_checks"] = json!(report.decode_checks);
    let team = Team::new(executors);
    // A checkpoint of all of a model leaves nothing of its base.
    let base_is_whole = beginning.checkpoint.is_none() || components.adapter.is_some();
    if let (Some(measure), Some(rows)) = (measure, &data.eval)
        && base_is_whole
    {
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
    let metrics = directory.file("metrics.jsonl");
    let metrics = match &beginning.checkpoint {
        None => Metrics::create(&metrics)?.headed(data.train.dataset().counts()),
        Some(checkpoint) => Metrics::go_on(&metrics, &checkpoint.metrics())?,
    };
    let progress = beginning.progress();
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

/// What a run is told that a plugin or the loading of weights gave up because it was asked to.
fn stopped(error: Error, stop: &StopFlag, checkpoints: &Checkpoints) -> Error {
    let cancelled = match &error {
        Error::Interrupted(_) => true,
        Error::Plugin(PluginFailure { source, .. }) => source.code == ErrorCode::CANCELLED,
        _ => false,
    };
    let newest = || {
        checkpoints
            .steps()
            .ok()
            .and_then(|steps| steps.last().copied())
    };
    match stop.requested().filter(|_| cancelled) {
        Some(signal) => Error::Stopped(Stopped {
            signal,
            step: newest().unwrap_or(0),
            saved: newest().map(|step| checkpoints.path(step)),
        }),
        None => error,
    }
}
