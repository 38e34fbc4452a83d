//! A config -> an open run: advanced step by step, then ended.

use std::path::Path;

use espalier_config::ResolvedConfig;
use espalier_data::ChatTemplate;
use espalier_engine::observer::{Event, Observer};
use espalier_engine::ranks::world_of_run;
use espalier_plan::plan::Purpose;
use espalier_system::failure::UsageError;
use espalier_system::files::RunDirectory;
use espalier_system::memory::{self, Meter};
use espalier_system::stop::StopFlag;

use super::base_measure::BaseMeasure;
use super::begin::Begin;
use super::beginning::Beginning;
use super::ready::{Ready, Wanted};
use super::runner::{Left, Runner};
use super::stopped::Stopped;
use super::{RunMemory, RunSummary, stored_dtype};
use crate::checkpoint::{Checkpoints, ResumeFrom};
use crate::export::{Export, Exported};
use crate::session::{ProcessContext, Session};
use crate::{Error, export, record};

/// The inputs for opening a run.
pub struct Opening<'a> {
    pub resolved: &'a ResolvedConfig,
    /// Where it resumes, if requested.
    pub from: Option<ResumeFrom>,
    /// The data shared with other runs of the process, if any.
    pub process_context: Option<&'a ProcessContext>,
    /// Measures its memory separately from theirs.
    pub meter: Meter,
    pub observer: &'a dyn Observer,
    pub stop: &'a StopFlag,
}

/// The result of opening a run.
pub enum Opened<'a> {
    /// It was finished before.
    Finished(Box<RunSummary>),
    Run(Box<Run<'a>>),
}

/// A run with its directory and loaded weights.
pub struct Run<'a> {
    runner: Runner<'a>,
    /// Holds the lock of the directory.
    beginning: Beginning,
    stop: &'a StopFlag,
}

impl<'a> Run<'a> {
    /// Opens the run: plans it, locks its directory, loads its weights. With `measure`, it also
    /// measures the base, and every held-out document's loss is written.
    ///
    /// # Errors
    /// Errors of planning, of the directory or of loading. Until the run's first metric is
    /// recorded, the directory stays free for the next attempt.
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
            .map(|from| Beginning::resumed(out, world, from, resolved, observer))
            .transpose()?;
        let begun = match &resumed {
            Some(beginning) => beginning.begun(resolved, observer)?,
            None => resolved.clone(),
        };
        let resolved = &begun;
        if let Some(beginning) = &resumed
            && let Some(summary) = finished(beginning, resolved)?
        {
            if world.writes() {
                // The process that finished it can have died before the report.
                observer.observe(&Event::RunEnded(out));
            }
            return Ok(Opened::Finished(Box::new(summary)));
        }
        let swapped = match &resumed {
            Some(beginning) => beginning.swapped(resolved)?,
            None => resolved.clone(),
        };
        let session = match process_context {
            None => Session::open_for(&swapped, Purpose::Train, observer, stop),
            Some(among) => {
                Session::open_among(&swapped, Purpose::Train, among, &meter, observer, stop)
            }
        }?;
        check_fits(&session, measure)?;
        let checkpoint = resumed.as_ref().and_then(|one| one.checkpoint.as_ref());
        let ready = Ready {
            wanted: Wanted::after(checkpoint),
            outline: record::outline(resolved, &session)?,
            chat_template: chat_template(&session, resolved)?,
            session,
        };
        ready.check(&swapped, observer, stop)?;
        // A resumed run uses its recorded patterns; those of arms were checked before.
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
                // Checkpoints requested during loading are still due.
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

    /// Runs due evaluations, saves and swaps, then the next step.
    ///
    /// # Errors
    /// [`Error::Stopped`] after a signal, once a checkpoint is saved; errors of a step, an
    /// evaluation or a write.
    pub fn advance(&mut self) -> Result<Left, Error> {
        let advanced = self.runner.advance();
        let components = &self.runner.live.components;
        advanced.map_err(|error| error.naming(&components.by_role()).in_progress())
    }

    /// Runs all remaining steps.
    ///
    /// # Errors
    /// As [`Run::advance`].
    pub fn do_the_rest(&mut self) -> Result<(), Error> {
        while self.advance()? == Left::Steps {}
        Ok(())
    }

    /// Completed steps.
    pub fn steps_done(&self) -> u64 {
        self.runner.progress.step
    }

    /// The meter of the run's memory.
    pub fn meter(&mut self) -> &mut Meter {
        &mut self.runner.meter
    }

    /// Ends the run: saves the trained params if `trained` is `Ok`.
    ///
    /// # Errors
    /// The error of `trained`; a failed write.
    pub fn end(mut self, trained: Result<(), Error>) -> Result<RunSummary, Error> {
        self.runner.answer_pending();
        let ended = trained.and_then(|()| self.save());
        let out = self.beginning.directory.path();
        if let Err(error) = &ended {
            self.runner.live.team.give_up(error);
        }
        self.runner.observer.observe(&Event::RunEnded(out));
        let checkpoints = &self.runner.checkpoints;
        ended.map_err(|error| Stopped::explaining(error.in_progress(), self.stop, checkpoints))
    }

    /// Writes the trained params to `.partial`, then their hashes into `run.json`, then renames
    /// them. The rename is the last write: it marks the run as finished.
    fn save(&mut self) -> Result<RunSummary, Error> {
        self.runner.restore_best()?;
        let written = self.write()?;
        let steps = Some(self.runner.progress.step);
        let exported = written.exported()?;
        self.runner.exported = exported.map(|exported| Exported { steps, ..exported });
        self.runner.put_on_record()?;
        let saved = written.commit()?;
        let runner = &self.runner;
        runner.observer.observe(&Event::Saved(&saved));
        let swaps = runner.swaps.0.iter().map(|swap| swap.record.clone());
        let (progress, live) = (&runner.progress, &runner.live);
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
                device_bytes: [live.team.device_bytes(), live.facts.device_bytes],
            }),
            saved,
        })
    }

    /// Writes the trained params to `.partial`.
    fn write(&self) -> Result<Export, Error> {
        let (runner, live) = (&self.runner, &self.runner.live);
        let (out, model) = (self.beginning.directory.path(), &live.around.model);
        let export = match live.adapter(&runner.base) {
            Some((adapter, sites, base)) => export::adapter(&live.team, adapter, sites, base, out),
            None => export::model(&live.team, model, stored_dtype(model.config()), out),
        }?;
        export.with_tokenizer(model, runner.chat_template.as_deref())
    }
}

/// The result of a run that was finished before.
///
/// # Errors
/// [`Error::Resume`] for a config that differs from the finished run's.
fn finished(beginning: &Beginning, resolved: &ResolvedConfig) -> Result<Option<RunSummary>, Error> {
    let Some(saved) = beginning.finished.clone() else {
        return Ok(None);
    };
    beginning.check_finished(resolved.config())?;
    Ok(Some(RunSummary::finished_before(saved)))
}

/// The text of the chat template, where it is not the tokenizer's own.
fn chat_template(session: &Session, resolved: &ResolvedConfig) -> Result<Option<String>, Error> {
    let chosen = resolved.config().data.chat_template.as_deref();
    Ok(ChatTemplate::chosen_text(session.directory.path(), chosen)?)
}

/// Refuses a plan that the memory at hand does not hold, or `measure` refuses.
fn check_fits(session: &Session, measure: Option<&dyn BaseMeasure>) -> Result<(), Error> {
    let plan = &session.run.plan;
    match measure {
        Some(measure) => measure.check(plan, session.services),
        None => Ok(plan.check(plan.available(memory::available_bytes()))?),
    }
}
