//! `host train`: the config, the plan, then the run.

use std::io::Write;

use anyhow::{Context, Result};
use espalier_trainer::config::{Need, resolve};
use espalier_trainer::error::Error;
use espalier_trainer::observer::{Observer, Unobserved};
use espalier_trainer::plan::PlanReport;
use espalier_trainer::session::Session;
use espalier_trainer::shell;
use espalier_trainer::stop::StopFlag;
use espalier_trainer::train::{self, RunSummary};
use indicatif::MultiProgress;

use crate::arguments::TrainArguments;
use crate::progress::Progress;
use crate::signals;

/// Trains, or with `--dry-run` shows what would be done.
pub fn run(arguments: &TrainArguments, bars: &MultiProgress, out: &mut dyn Write) -> Result<()> {
    let resolved = resolve(&arguments.run.sources()).map_err(Error::from)?;
    if arguments.dry_run {
        write!(out, "{}", resolved.to_toml())?;
        let needs = [Need::Model, Need::Data];
        resolved.require(&needs).map_err(Error::from)?;
        let session = Session::open(&resolved, &Unobserved)?;
        write!(out, "\n{}", PlanReport::new(&session)?)?;
        return Ok(());
    }
    let needs = [Need::Model, Need::Data, Need::Out];
    resolved.require(&needs).map_err(Error::from)?;
    let stop = StopFlag::new();
    signals::watch(&stop).context("cannot watch for signals")?;
    let progress = Progress::new(bars);
    let observer: &dyn Observer = match arguments.quiet {
        true => &Unobserved,
        false => &progress,
    };
    let trained = match arguments.resume {
        None => train::run(&resolved, observer, &stop),
        Some(from) => train::resume(&resolved, from, observer, &stop),
    };
    let summary = trained.map_err(|error| error.offering(resuming_command))?;
    print_summary(&summary, out)?;
    Ok(())
}

/// This command line, going on from the checkpoint after `step` steps.
fn resuming_command(step: u64) -> String {
    let words = std::env::args().filter(|word| !is_resume(word));
    let resume = format!("--resume=step-{step}");
    let words = words.map(|word| shell::quoted(&word)).chain([resume]);
    words.collect::<Vec<_>>().join(" ")
}

fn is_resume(word: &str) -> bool {
    word == "--resume" || word.starts_with("--resume=")
}

/// The run in a few lines: what it learned, and where it lies.
fn print_summary(summary: &RunSummary, out: &mut dyn Write) -> std::io::Result<()> {
    if summary.finished_before {
        let saved = summary.saved.display();
        return writeln!(out, "nothing to do: this run is finished, see {saved}");
    }
    writeln!(out, "{} steps done", summary.steps)?;
    if let Some(before) = &summary.eval_before {
        let after = summary.eval_after.as_ref().unwrap_or(before);
        writeln!(
            out,
            "held-out loss {:.4} before, {:.4} after (perplexity {:.2} -> {:.2}, \
             token accuracy {:.1} % -> {:.1} %)",
            before.eval_loss,
            after.eval_loss,
            before.eval_perplexity,
            after.eval_perplexity,
            100.0 * before.eval_token_accuracy,
            100.0 * after.eval_token_accuracy,
        )?;
    }
    writeln!(out, "saved {}", summary.saved.display())
}
