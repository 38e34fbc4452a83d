//! `host compare`: the arms, their plans, then their runs.

use std::io::Write;

use anyhow::Result;
use espalier_compare::report::Report;
use espalier_compare::{RunLabel, Watch};
use espalier_config::{Need, resolve};
use espalier_engine::observer::{All, Event, Observer, Unobserved};
use espalier_report::tensorboard::TensorBoard;
use espalier_system::files::Continue;
use espalier_system::shell;
use espalier_system::stop::StopFlag;
use espalier_trainer::error::Error;

use super::report;
use crate::arguments::CompareArguments;
use crate::display;
use crate::output::Output;
use crate::progress::{Progress, Warnings};
use crate::watch::{Showing, watched};

/// Runs the comparison, or with `--dry-run` shows its plan.
pub fn run(arguments: &CompareArguments, out: &mut Output) -> Result<()> {
    let resolved = resolve(&arguments.sources()).map_err(Error::from)?;
    if arguments.dry_run {
        let needs = [Need::Model, Need::Data];
        resolved.require(&needs).map_err(Error::from)?;
        let preview = espalier_compare::preview(&resolved, &Unobserved, &StopFlag::new())?;
        write!(out, "{preview}")?;
        return Ok(());
    }
    let needs = [Need::Model, Need::Data, Need::Out];
    resolved.require(&needs).map_err(Error::from)?;
    let directory = resolved.config().run.out.as_deref();
    let existing = if arguments.resume {
        Continue::Resume
    } else {
        Continue::Refuse
    };
    let compared = watched(
        Showing::unless_quiet(arguments.quiet),
        directory,
        |shown, stop| {
            let watch = Shown {
                whole: shown,
                quiet: arguments.quiet,
                logs: directory.is_some(),
            };
            let compared = espalier_compare::run(&resolved, existing, &watch, stop);
            compared.map_err(|error| error.going_on(resuming_command))
        },
    )?;
    let mut printed = Ok(());
    if let Some(directory) = directory {
        display::open_log();
        let report = Report::of(directory)?;
        out.set_place(directory);
        printed = report::show_comparison(&report, &directory.join("report.html"), out);
    }
    compared.check_failures()?;
    Ok(printed?)
}

/// Shows the whole comparison, and each run by its name.
struct Shown<'a> {
    whole: &'a dyn Observer,
    quiet: bool,
    logs: bool,
}

/// A run's progress, on standard error and in the comparison's log, and its curves for TensorBoard.
struct ShownRun {
    progress: Option<Progress>,
    kept: Option<Progress>,
    board: Option<TensorBoard>,
}

impl Watch for Shown<'_> {
    fn whole(&self) -> &dyn Observer {
        self.whole
    }

    fn run(&self, label: RunLabel) -> Box<dyn Observer + '_> {
        let name = match label.seed {
            Some(seed) => {
                let (number, total) = (label.number, label.total);
                format!("[{number}/{total}] {} seed {seed}", label.arm)
            }
            None => format!("{} measured", label.arm),
        };
        let directory = label.directory.as_deref();
        Box::new(ShownRun {
            progress: (!self.quiet).then(|| Progress::shown().of(&name)),
            kept: self.logs.then(|| Progress::kept().of(&name)),
            board: directory.map(|run| TensorBoard::new(&run.join("tensorboard"))),
        })
    }
}

impl Observer for ShownRun {
    fn observe(&self, event: &Event<'_>) {
        let progress = self.progress.as_ref().map(|shown| shown as &dyn Observer);
        let kept = self.kept.as_ref().map(|kept| kept as &dyn Observer);
        let board = self.board.as_ref().map(|board| board as &dyn Observer);
        All(&[
            progress.unwrap_or(&Warnings),
            kept.unwrap_or(&Unobserved),
            board.unwrap_or(&Unobserved),
        ])
        .observe(event);
    }
}

/// This command line with `--resume`.
fn resuming_command() -> String {
    let words = std::env::args().filter(|word| word != "--resume");
    let words = words.map(|word| shell::quoted(&word));
    words
        .chain(["--resume".to_owned()])
        .collect::<Vec<_>>()
        .join(" ")
}
