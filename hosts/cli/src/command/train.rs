//! `host train`: the config, the plan, then the run.

mod learned;
mod summary;

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use espalier_config::{Need, resolve};
use espalier_engine::observer::{All, Observer, Unobserved};
use espalier_engine::ranks::world_of_run;
use espalier_report::Reporting;
use espalier_report::tensorboard::TensorBoard;
use espalier_system::shell;
use espalier_trainer::error::Error;
use espalier_trainer::planner::{Asked, PlanReport};
use espalier_trainer::session::Session;
use espalier_trainer::train;

use crate::arguments::TrainArguments;
use crate::display;
use crate::output::Output;
use crate::progress::Warnings;
use crate::watch::{Showing, watched};

use learned::Learned;

/// Trains, or with `--dry-run` shows the plan.
pub fn run(arguments: &TrainArguments, out: &mut Output) -> Result<()> {
    arguments.check()?;
    let resolved = resolve(&arguments.sources()?).map_err(Error::from)?;
    if arguments.dry_run {
        write!(out, "{}", resolved.to_toml())?;
        let needs = [Need::Model, Need::Data];
        resolved.require(&needs).map_err(Error::from)?;
        let session = Session::open(&resolved, &Warnings)?;
        write!(
            out,
            "\n{}",
            PlanReport::of(&session, resolved.config(), &Asked::default())?
        )?;
        return Ok(());
    }
    let needs = [Need::Model, Need::Data, Need::Out];
    resolved.require(&needs).map_err(Error::from)?;
    // One of several processes prints and writes for all.
    let world = world_of_run(&resolved.config().run)?;
    let (writes, alone) = (world.writes(), world.processes == 1);
    let program = std::env::args().next().unwrap_or_default();
    let out_directory = resolved.config().run.out.as_deref().filter(|_| writes);
    let board = out_directory.map(|out| TensorBoard::new(&out.join("tensorboard")));
    let board = board.as_ref().map(|board| board as &dyn Observer);
    let shown = if writes {
        Showing::unless_quiet(arguments.quiet)
    } else {
        Showing::Nothing
    };
    let summary = watched(shown, out_directory, |shown, stop| {
        let observers = [shown, board.unwrap_or(&Unobserved)];
        let observer = &Reporting(All(&observers));
        let trained = match arguments.resume {
            None => train::run(&resolved, observer, stop),
            Some(from) => train::resume(&resolved, from, observer, stop),
        };
        let directory = out_directory.filter(|_| alone);
        let newest = || Some(continuing_command(&program, directory?));
        trained.map_err(|error| error.offering(|step| step.map(resuming_command).or_else(newest)))
    })?;
    if writes {
        let learned = out_directory.map_or_else(Learned::default, Learned::of);
        let lines = summary::lines(&summary, &learned, &program);
        lines.lines().for_each(display::keep);
        out.set_place(&summary.saved);
        write!(out, "{lines}")?;
    }
    Ok(())
}

/// The command that continues the run in `out` from its newest checkpoint, from any folder. The
/// processes of a launcher have no such command.
fn continuing_command(program: &str, out: &Path) -> String {
    let (program, out) = (shell::program(program), shell::path(out));
    format!("{program} train --resume {out}")
}

/// This command line, resuming from the checkpoint after `step` steps.
fn resuming_command(step: u64) -> String {
    let words = std::env::args().filter(|word| !is_resume(word));
    let resume = format!("--resume=step-{step}");
    let words = words.map(|word| shell::quoted(&word)).chain([resume]);
    words.collect::<Vec<_>>().join(" ")
}

fn is_resume(word: &str) -> bool {
    word == "--resume" || word.starts_with("--resume=")
}
