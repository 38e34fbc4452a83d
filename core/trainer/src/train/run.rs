//! A config -> a run that is open: driven step by step, then brought to its end.

use std::path::Path;

use espalier_config::ResolvedConfig;
use espalier_engine::observer::{Event, Observer};
use espalier_engine::ranks::world_of_run;
use espalier_plan::plan::Purpose;
use espalier_system::failure::UsageError;
use espalier_system::files::RunDirectory;
use espalier_system::memory::Meter;
use espalier_system::stop::StopFlag;

use super::base_measure::BaseMeasure;
use super::begin::Begin;
use super::beginning::Beginning;
use super::ready::{Ready, Wanted};
use super::runner::{Left, Runner};
use super::stopped::Stopped;
use super::{RunMemory, RunSummary, stored_dtype};
use crate::checkpoint::{Checkpoints, ResumeFrom};
use crate::export::Export;
use crate::session::{ProcessContext, Session};
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
    /// Opens the run: plans it, claims its directory, loads its weights. Where `measure` is given,
    /// it measures the base, and every held-out document's loss is written.
    ///
    /// # Errors
    /// Whatever goes wrong. Until the first number of the run is on record, the directory is left
    /// free for the next attempt.
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
            .map_err(|error| Stopped::explaining(error, stop, &Checkpoints::of(out)))
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
        let resumed = from
            .map(|from| Beginning::resumed(out, world, from, observer))
            .transpose()?;
        let begun = match &resumed {
            Some(beginning) => beginning.begun(resolved, observer)?,
            None => resolved.clone(),
        };
        let resolved = &begun;
        if let Some(beginning) = &resumed
            && let Some(summary) = finished(beginning, resolved)?
        {
            // Whoever finished it may have died before its report.
            if world.writes() {
                observer.observe(&Event::RunEnded(out));
            }
            return Ok(Opened::Finished(Box::new(summary)));
        }
        let earlier = resumed.as_ref();
        let swapped = earlier.map_or_else(|| Ok(resolved.clone()), |one| one.swapped(resolved))?;
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
        let checkpoint = earlier.and_then(|one| one.checkpoint.as_ref());
        let ready = Ready {
            wanted: Wanted::after(checkpoint),
            outline: record::outline(resolved, &session)?,
            session,
        };
        ready.check(&swapped, observer, stop)?;
        // A run that has begun goes on with what it has on record; arms have patterns in common,
        // which were checked before.
        if from.is_none() && measure.is_none() {
            ready.session.check_patterns(&swapped)?;
        }
        if let Some(beginning) = &resumed {
            beginning.check_outline(&ready.outline)?;
        }
        let components = ready.session.components.by_role();
        let beginning = resumed.map_or_else(|| Beginning::fresh(out, world), Ok)?;
        let begin = Begin {
            resolved,
            swapped,
            beginning: &beginning,
            measure,
            meter,
            observer,
            stop,
        };
        match begin.run(ready) {
            Ok(mut runner) => {
                // What was asked for while it was loaded is still to be done.
                runner.saves_seen = saves_seen;
                Ok(Opened::Run(Box::new(Run {
                    runner,
                    beginning,
                    stop,
                })))
            }
            Err(error) => {
                observer.observe(&Event::RunEnded(beginning.directory.path()));
                Err(error.naming(&components).in_progress())
            }
        }
    }

    /// Does what is due, and the next step.
    ///
    /// # Errors
    /// [`Error::Stopped`] after a signal, once a checkpoint is saved; whatever ends the run.
    pub fn advance(&mut self) -> Result<Left, Error> {
        let advanced = self.runner.advance();
        let components = &self.runner.live.components;
        advanced.map_err(|error| error.naming(&components.by_role()).in_progress())
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
        ended.map_err(|error| Stopped::explaining(error.in_progress(), self.stop, checkpoints))
    }

    /// Writes what was trained: beside its place, then its hashes into `run.json`, then into its
    /// place. The last to be written, it tells a finished run from one to go on with.
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
}

/// What a run came to that was finished before.
///
/// # Errors
/// A config that is not the finished run's.
fn finished(beginning: &Beginning, resolved: &ResolvedConfig) -> Result<Option<RunSummary>, Error> {
    let Some(saved) = beginning.finished.clone() else {
        return Ok(None);
    };
    beginning.check_finished(resolved.config())?;
    Ok(Some(RunSummary::finished_before(saved)))
}
