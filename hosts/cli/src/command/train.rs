//! `host train`: the config, the plan, then the run.

use std::io::Write;

use anyhow::{Context, Result};
use espalier_trainer::config::{Need, resolve};
use espalier_trainer::error::Error;
use espalier_trainer::observer::{Observer, Unobserved};
use espalier_trainer::stop::StopFlag;
use indicatif::MultiProgress;

use crate::arguments::TrainArguments;
use crate::progress::Progress;
use crate::signals;

/// Trains, or with `--dry-run` shows what would be done.
pub fn run(arguments: &TrainArguments, bars: &MultiProgress, out: &mut dyn Write) -> Result<()> {
    let resolved = resolve(&arguments.run.sources()).map_err(Error::from)?;
    if arguments.dry_run {
        write!(out, "{}", resolved.to_toml())?;
        return Ok(());
    }
    let needs = [Need::Model, Need::Data, Need::Out];
    resolved.require(&needs).map_err(Error::from)?;
    let stop = StopFlag::new();
    signals::watch(&stop).context("cannot watch for signals")?;
    let progress = Progress::new(bars);
    let _observer: &dyn Observer = match arguments.quiet {
        true => &Unobserved,
        false => &progress,
    };
    Ok(())
}
