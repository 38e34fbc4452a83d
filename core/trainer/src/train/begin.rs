//! A session that fits -> its run: joined ranks, loaded weights, files of its directory.

use std::sync::Arc;

use espalier_compile::params::Param;
use espalier_config::ResolvedConfig;
use espalier_engine::load::{LoadReport, told_errors};
use espalier_engine::measure::{self as speeds, Cause, Peaks};
use espalier_engine::observer::{Event, Observer};
use espalier_engine::team::Team;
use espalier_interface::{Device, Init};
use espalier_plan::initialised_sites::InitialisedSite;
use espalier_plan::plan::WorldMemory;
use espalier_registry::select::Components;
use espalier_system::failure::UsageError;
use espalier_system::files::ModelDirectory;
use espalier_system::memory::Meter;
use espalier_system::stop::StopFlag;
use espalier_system::threads::HostServices;
use serde_json::{Value as Json, json};

use super::base_measure::{BaseMeasure, LoadedBase};
use super::beginning::Beginning;
use super::held_out_log::HeldOutLog;
use super::metrics::Metrics;
use super::ready::{Ready, Wanted};
use super::runner::Runner;
use crate::calibration::{CalibrationRecord, ROWS_FILE, TrainingRows};
use crate::checkpoint::{self, Checkpoints};
use crate::session::{RunData, Session};
use crate::swap::{Facts, Live, Mailbox, RunContext};
use crate::weights::{Loading, join_ranks};
use crate::{Error, record};

/// The inputs of a run's start.
pub(super) struct Begin<'a, 'b> {
    /// The config of the run.
    pub resolved: &'b ResolvedConfig,
    /// The same with the swaps so far; the session was opened with it.
    pub swapped: ResolvedConfig,
    /// The locked directory.
    pub beginning: &'b Beginning,
    /// Measures the base, if requested.
    pub measure: Option<&'b dyn BaseMeasure>,
    /// Measures the run's memory.
    pub meter: Meter,
    pub observer: &'a dyn Observer,
    pub stop: &'a StopFlag,
}

/// A model with loaded weights.
struct LoadedModel {
    model: ModelDirectory,
    components: Components,
    data: RunData,
    services: &'static HostServices,
    team: Team,
}

impl<'a> Begin<'a, '_> {
    /// The run of a session before its next step.
    ///
    /// # Errors
    /// A rank that does not connect, weights that cannot be loaded, a checkpoint that cannot be
    /// restored, a directory that cannot be written.
    pub fn run(self, ready: Ready) -> Result<Runner<'a>, Error> {
        let Ready {
            session,
            outline: mut circumstances,
            wanted,
            chat_template,
        } = ready;
        let plan = &session.run.plan;
        let (planned, facts) = (WorldMemory::of(plan), Facts::of(plan));
        let peaks = self.put_on_record(&session, &mut circumstances)?;
        let (loaded, report) = self.load(session, wanted, &mut circumstances)?;
        self.measure_base(&loaded, report)?;
        if let Some(checkpoint) = &self.beginning.checkpoint {
            let team = &loaded.team;
            team.each(|executor| checkpoint::restore(checkpoint, executor))?;
        }
        let LoadedModel {
            model,
            components,
            data,
            services,
            team,
        } = loaded;
        let (beginning, observer, stop) = (self.beginning, self.observer, self.stop);
        let (directory, progress) = (&beginning.directory, beginning.progress());
        // Written only now: a refused run leaves the directory free for the next attempt.
        let metrics = metrics(beginning, &data)?;
        let mut runner = Runner {
            config: self.resolved.config().clone(),
            observer,
            stop,
            saves_seen: 0,
            base: model.path().display().to_string(),
            live: Live {
                team,
                components,
                resolved: self.swapped,
                facts,
                around: RunContext {
                    model,
                    services,
                    observer,
                    stop,
                },
            },
            data: Arc::new(data),
            chat_template,
            run: circumstances,
            run_json: directory.file("run.json"),
            exported: beginning.exported(),
            swaps: beginning.swaps.clone(),
            later_swaps: beginning.later_swaps.clone().into(),
            mailbox: Mailbox::of(directory.path()),
            held_out: match self.measure {
                Some(_) => HeldOutLog::of(directory.path()),
                None => HeldOutLog::of_run_alone(directory.path()),
            },
            checkpoints: Checkpoints::of(directory.home()),
            metrics,
            saved: (progress.step > 0).then_some(progress.step),
            progress,
            peaks,
            meter: self.meter,
            planned,
        };
        if let Some(saved) = runner.saved {
            // The process that saved it can have died before pruning.
            runner.prune(saved);
        }
        runner.put_on_record()?;
        Ok(runner)
    }

    /// Completes `run.json` with hashes and the devices' speed, and writes it.
    fn put_on_record(&self, session: &Session, circumstances: &mut Json) -> Result<Peaks, Error> {
        let observer = self.observer;
        observer.observe(&Event::RunStarted(&session.summary()));
        if let Some(idle) = session.idle_ranks(self.swapped.config()) {
            observer.observe(&Event::Note(&idle.to_string()));
        }
        if let Some(warning) = self.swapped.config().optim.second_moment_warning() {
            observer.observe(&Event::Warning(&warning));
        }
        let rate = product_rate(session)?;
        record::complete(circumstances, session, rate)?;
        self.beginning.check(circumstances, observer)?;
        let mut peaks = self.beginning.peaks();
        peaks.push(self.beginning.progress().step + 1, rate, Cause::Start);
        circumstances["machine"]["peak_rates"] = json!(peaks);
        Ok(peaks)
    }

    /// Joins the ranks and loads the `wanted` weights; returns the report of loading.
    fn load(
        &self,
        session: Session,
        wanted: Wanted,
        circumstances: &mut Json,
    ) -> Result<(LoadedModel, LoadReport), Error> {
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
        let config = self.swapped.config();
        let plan = &run.plan;
        if self.measure.is_some() && components.saved_adapter.is_some() {
            refuse_values_of_files(&plan.initialised_sites)?;
        }
        let training_rows = data.as_ref().and_then(|data| data.calibration.as_ref());
        let rows = training_rows.map_or(TrainingRows::None, TrainingRows::Read);
        let record = CalibrationRecord::of(plan, (config, &model), rows)?;
        let writes = plan.demand.world.writes();
        let inspector = self.measure.and_then(|one| one.inspector(plan, services));
        let loading = Loading {
            config,
            model: &model,
            components: &components,
            observer: self.observer,
            stop: self.stop,
            inspector,
            kept: self.measure.and_then(BaseMeasure::kept),
            training_rows,
        };
        let runs = std::iter::once(run).chain(others).collect();
        let roll = (&*circumstances, self.beginning.progress().step);
        let ranks = join_ranks(runs, &collectives, config, self.stop, roll)?;
        // A base is measured with a fresh adapter, also where a checkpoint is restored after it.
        let measures = self.measure.is_some();
        let measured = |param: &Param| measures && param.init == Init::FromWeight;
        let wanted = |param: &Param| wanted.holds(param) || measured(param);
        let (executors, report) = loading.load_ranks(ranks, &wanted)?;
        circumstances["decode_checks"] = json!(report.decode_checks);
        if let Some(record) = record.filter(|_| writes) {
            record.write(&self.beginning.directory.file(ROWS_FILE))?;
        }
        circumstances["packed_weights"] = json!({
            "encoded": report.encoded,
            "cached": report.cached,
            "errors": report.errors,
        });
        // A comparison measures errors of whole weights.
        if let Some(line) = told_errors(&report.errors).filter(|_| self.measure.is_none()) {
            self.observer.observe(&Event::Note(&line));
        }
        let loaded = LoadedModel {
            data: data.expect("a run without rows is refused before it begins"),
            team: Team::new(executors),
            model,
            components,
            services,
        };
        Ok((loaded, report))
    }

    /// Measures the base, if requested and loaded.
    fn measure_base(&self, loaded: &LoadedModel, report: LoadReport) -> Result<(), Error> {
        let (Some(measure), Some(rows)) = (self.measure, &loaded.data.eval) else {
            return Ok(());
        };
        // A checkpoint of full fine-tuning replaces all of the base.
        if self.beginning.checkpoint.is_some() && loaded.components.adapter.is_none() {
            return Ok(());
        }
        let base = LoadedBase {
            team: &loaded.team,
            rows,
            seed: self.resolved.config().run.seed,
            services: loaded.services,
            observer: self.observer,
            stop: self.stop,
        };
        measure.measure(&base, report)
    }
}

/// Refuses to measure the base below a saved adapter whose params began from weights: only fresh
/// values leave the base as it is.
fn refuse_values_of_files(initialised: &[InitialisedSite]) -> Result<(), Error> {
    let Some(first) = initialised.first() else {
        return Ok(());
    };
    Err(Error::Usage(UsageError {
        message: format!(
            "a comparison measures the base without its adapter, and the saved adapter at `{}` \
             cannot be taken out: its params began from the weight",
            first.site.name
        ),
        next_step: "leave --adapter out, which trains a new adapter; or use `train` and `eval`"
            .to_owned(),
    }))
}

/// The rate of products of all ranks, measured together, in operations per second.
fn product_rate(session: &Session) -> Result<f64, Error> {
    let plan = &session.run.plan;
    let runs = std::iter::once(&session.run).chain(&session.others);
    let devices: Vec<&dyn Device> = runs.map(|run| run.device.as_ref()).collect();
    let rate = speeds::gemm_rate_of_all(&devices, plan.dtypes.compute)?;
    Ok(rate * f64::from(plan.demand.world.processes))
}

/// The run's `metrics.jsonl`, restored from its checkpoint.
fn metrics(beginning: &Beginning, data: &RunData) -> Result<Metrics, Error> {
    let path = beginning.directory.file("metrics.jsonl");
    match &beginning.checkpoint {
        None => Ok(Metrics::create(&path)?.headed(data.train.dataset().counts())),
        Some(checkpoint) => Ok(Metrics::go_on(&path, &checkpoint.metrics())?),
    }
}
