//! Arms and seeds -> their runs in one process, sequential or interleaved by step.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::{Path, PathBuf};

use espalier_config::{ResolvedConfig, Turns};
use espalier_engine::observer::{Event, Observer};
use espalier_plan::plan::Purpose;
use espalier_report::Reporting;
use espalier_system::failure::chain;
use espalier_system::files;
use espalier_system::memory::Meter;
use espalier_system::stop::StopFlag;
use espalier_trainer::Error as TrainerError;
use espalier_trainer::checkpoint::ResumeFrom;
use espalier_trainer::session::{ProcessContext, Session};
use espalier_trainer::train::{BaseMeasure, Left, LoadedBase, Opened, Opening, Run};
use espalier_trainer::weights::Loading;
use serde_json::{Map, Value as Json};

use super::base;
use super::dense_baseline::DenseBaseline;
use super::kept_bases::KeptBases;
use super::measuring::Measuring;
use super::plans::Planned;
use super::record::{Comparison, Failure, run_directory};
use super::watch::{RunLabel, Watch};
use crate::{ArmFailure, Error};

/// An active comparison.
pub(crate) struct Runs<'a> {
    pub out: &'a Path,
    pub planned: &'a [Planned],
    pub record: RefCell<Comparison>,
    /// The context shared by all runs.
    pub process_context: &'a ProcessContext,
    /// The same with the held-out rows only.
    pub held_out: &'a ProcessContext,
    pub watch: &'a dyn Watch,
    pub stop: &'a StopFlag,
    /// Bytes of the program and of data shared by all runs.
    pub bare_bytes: u64,
    /// Where the runs of an earlier process resume.
    pub from: Option<ResumeFrom>,
    /// The dense baseline, where the first arm is dense.
    pub dense_baseline: Option<RefCell<DenseBaseline>>,
    /// The encoded weights of the arms between their runs.
    pub kept: KeptBases,
    /// Completed runs.
    pub done: Cell<usize>,
    /// Arms with at least one opened run.
    pub started: RefCell<Vec<usize>>,
}

/// A run to open.
struct Entrant<'a> {
    arm: usize,
    seed: u64,
    resolved: ResolvedConfig,
    observer: Reporting<Box<dyn Observer + 'a>>,
}

impl Runs<'_> {
    /// All runs: under each seed in turn, every arm.
    pub fn total(&self) -> usize {
        let record = self.record.borrow();
        if record.eval_only {
            record.arms.len()
        } else {
            record.arms.len() * record.seeds.len()
        }
    }

    /// Performs all remaining runs.
    ///
    /// # Errors
    /// Errors of the comparison as a whole; an error of one run is that run's failure. A stop
    /// request is no error here: every run has saved a checkpoint.
    pub fn train(&self, turns: Turns) -> Result<(), Error> {
        let arms: Vec<usize> = (0..self.planned.len()).collect();
        let seeds = self.record.borrow().seeds.clone();
        for seed in seeds {
            match turns {
                Turns::Interleaved => self.race(&arms, seed)?,
                Turns::Sequential => arms.iter().try_for_each(|arm| self.race(&[*arm], seed))?,
            }
        }
        Ok(())
    }

    /// Measures all arms without training.
    ///
    /// # Errors
    /// As [`Runs::train`].
    pub fn measure(&self) -> Result<(), Error> {
        for arm in 0..self.planned.len() {
            if self.continues(arm) && !self.is_measured(arm) {
                self.ensure_dense_baseline(arm)?;
                self.measure_alone(arm)?;
            }
            self.done.set(self.done.get() + 1);
        }
        Ok(())
    }

    /// Writes the record of the comparison.
    ///
    /// # Errors
    /// A directory that cannot be written, a full disk.
    pub fn write(&self) -> Result<(), TrainerError> {
        let record = serde_json::to_value(&*self.record.borrow());
        let record = record.expect("a comparison is plain data");
        Ok(files::write_json(
            &self.out.join(files::COMPARISON),
            &record,
        )?)
    }

    /// Records and prints the failure of a run, or of an arm where there is no seed.
    ///
    /// # Errors
    /// As [`Runs::write`].
    pub fn fail(
        &self,
        arm: usize,
        seed: Option<u64>,
        step: u64,
        why: &TrainerError,
    ) -> Result<(), TrainerError> {
        let message = chain(why);
        let name = self.name(arm);
        match seed {
            Some(seed) => tracing::error!("arm `{name}`, seed {seed}, step {step}: {message}"),
            None => tracing::error!("arm `{name}`: {message}"),
        }
        self.record.borrow_mut().arms[arm].failures.push(Failure {
            seed,
            step,
            message,
        });
        self.write()
    }

    fn name(&self, arm: usize) -> &str {
        &self.planned[arm].arm.name
    }

    fn is_measured(&self, arm: usize) -> bool {
        base::read(self.out, self.name(arm)).is_some()
    }

    /// Whether an arm continues: it has not failed as a whole, and no stop is requested.
    fn continues(&self, arm: usize) -> bool {
        let failures = &self.record.borrow().arms[arm].failures;
        let failed = failures.iter().any(|failure| failure.seed.is_none());
        !failed && self.stop.requested().is_none()
    }

    /// Performs the runs of `arms` under `seed`, interleaved by step.
    fn race(&self, arms: &[usize], seed: u64) -> Result<(), Error> {
        let entrants = arms.iter().map(|&arm| self.entrant(arm, seed));
        let entrants: Vec<Entrant<'_>> = entrants.collect::<Result<_, _>>()?;
        let mut runs: Vec<(&Entrant<'_>, Run<'_>)> = Vec::new();
        for entrant in entrants
            .iter()
            .filter(|entrant| self.continues(entrant.arm))
        {
            match self.open(entrant) {
                Ok(Opened::Run(mut run)) => {
                    run.meter().leave();
                    runs.push((entrant, *run));
                }
                Ok(Opened::Finished(_)) => self.done.set(self.done.get() + 1),
                Err(error) => self.ended(entrant, 0, Err(error))?,
            }
        }
        while !runs.is_empty() {
            let mut left = Vec::with_capacity(runs.len());
            for (entrant, mut run) in runs {
                run.meter().enter();
                match run.advance() {
                    Ok(Left::Steps) => {
                        run.meter().leave();
                        left.push((entrant, run));
                    }
                    advanced => {
                        let step = run.steps_done();
                        let ended = run.end(advanced.map(drop)).map(drop);
                        self.ended(entrant, step, ended)?;
                    }
                }
            }
            runs = left;
        }
        Ok(())
    }

    fn entrant(&self, arm: usize, seed: u64) -> Result<Entrant<'_>, Error> {
        let directory = run_directory(self.out, self.name(arm), seed);
        let run = Map::from_iter([
            ("seed".to_owned(), Json::from(seed)),
            (
                "out".to_owned(),
                Json::from(directory.display().to_string()),
            ),
        ]);
        let values = Map::from_iter([("run".to_owned(), Json::Object(run))]);
        let resolved = &self.planned[arm].arm.resolved;
        Ok(Entrant {
            arm,
            seed,
            resolved: resolved.overlaid("the comparison", values, &[])?,
            observer: Reporting(self.watch.run(self.label(arm, Some((seed, directory))))),
        })
    }

    fn label(&self, arm: usize, run: Option<(u64, PathBuf)>) -> RunLabel {
        let (seed, directory) = run.unzip();
        let record = self.record.borrow();
        let seeds = record.seeds.iter();
        let before = seeds.take_while(|earlier| Some(**earlier) != seed).count();
        let before = if seed.is_some() { before } else { 0 };
        RunLabel {
            number: before * record.arms.len() + arm + 1,
            arm: self.name(arm).to_owned(),
            seed,
            directory,
            total: self.total(),
        }
    }

    fn open<'b>(&'b self, entrant: &'b Entrant<'_>) -> Result<Opened<'b>, TrainerError> {
        self.ensure_dense_baseline(entrant.arm)?;
        self.stop.check()?;
        let opening = Opening {
            resolved: &entrant.resolved,
            from: self.from,
            process_context: Some(self.process_context),
            meter: Meter::beginning_with(self.bare_bytes),
            observer: &entrant.observer,
            stop: self.stop,
        };
        let arm = entrant.arm;
        let is_last = self.record.borrow().seeds.last() == Some(&entrant.seed);
        let kept = self.kept.of(arm, self.planned[arm].kept_bytes, is_last);
        let measuring = Measuring {
            kept: kept.clone(),
            ..self.measuring(arm)
        };
        let opened = Run::open(opening, Some(&measuring));
        if let Some(failure) = kept.and_then(|kept| kept.take_failure()) {
            let note = format!(
                "arm `{}`: each run encodes the base again: {}",
                self.name(arm),
                chain(&failure)
            );
            self.watch.whole().observe(&Event::Note(&note));
        }
        let opened = opened?;
        self.started.borrow_mut().push(arm);
        Ok(opened)
    }

    /// Records the end of a run.
    fn ended(
        &self,
        entrant: &Entrant<'_>,
        step: u64,
        ended: Result<(), TrainerError>,
    ) -> Result<(), Error> {
        match ended {
            Ok(()) => self.done.set(self.done.get() + 1),
            // Its state is saved.
            Err(TrainerError::Stopped(_) | TrainerError::Interrupted(_)) => {}
            // The comparison differs from the one on disk.
            Err(error @ TrainerError::Resume(_)) => {
                return Err(ArmFailure::of(self.name(entrant.arm), error).into());
            }
            Err(error) => {
                let started = self.started.borrow().contains(&entrant.arm);
                let seed = started.then_some(entrant.seed);
                self.fail(entrant.arm, seed, step, &error)?;
            }
        }
        Ok(())
    }

    fn measuring(&self, arm: usize) -> Measuring<'_> {
        Measuring {
            out: self.out,
            arm: self.name(arm),
            dense_baseline: self.dense_baseline.as_ref(),
            is_dense_baseline: arm == 0,
            errors: OnceCell::new(),
            kept: None,
        }
    }

    /// Ensures that the dense base is measured before `arm` is compared with it.
    fn ensure_dense_baseline(&self, arm: usize) -> Result<(), TrainerError> {
        let Some(dense_baseline) = &self.dense_baseline else {
            return Ok(());
        };
        let arms = std::iter::once(self.name(arm));
        let needed = base::needs_dense_baseline(&dense_baseline.borrow(), self.out, arms);
        if arm != 0 && needed && self.continues(0) {
            self.measure_alone(0)
        } else {
            Ok(())
        }
    }

    /// Loads an arm, measures it and releases it.
    fn measure_alone(&self, arm: usize) -> Result<(), TrainerError> {
        match self.load_and_measure(arm) {
            Err(TrainerError::Interrupted(_)) => Ok(()),
            Err(_) if self.stop.requested().is_some() => Ok(()),
            Err(error) => self.fail(arm, None, 0, &error),
            Ok(()) => Ok(()),
        }
    }

    fn load_and_measure(&self, arm: usize) -> Result<(), TrainerError> {
        let (resolved, measuring) = (&self.planned[arm].bare, self.measuring(arm));
        let observer = self.watch.run(self.label(arm, None));
        let observer = observer.as_ref();
        let meter = Meter::beginning_with(self.bare_bytes);
        let (purpose, held_out) = (Purpose::Evaluate, self.held_out);
        let session =
            Session::open_among(resolved, purpose, held_out, &meter, observer, self.stop)?;
        measuring.check(&session.run.plan, session.services)?;
        observer.observe(&Event::RunStarted(&session.summary()));
        let Session {
            directory,
            components,
            data,
            run,
            others,
            collectives,
            services,
            ..
        } = session;
        let data = data.expect("rows were read before arms were planned");
        let rows = data.train;
        let loading = Loading {
            config: resolved.config(),
            model: &directory,
            components: &components,
            observer,
            stop: self.stop,
            inspector: measuring.inspector(&run.plan, services),
            kept: None,
            training_rows: data.calibration.as_ref(),
        };
        let runs = std::iter::once(run).chain(others).collect();
        let (team, report) = loading.team(runs, &collectives)?;
        let base = LoadedBase {
            team: &team,
            rows: &rows,
            seed: resolved.config().run.seed,
            services,
            observer,
            stop: self.stop,
        };
        measuring.measure(&base, report)
    }
}
