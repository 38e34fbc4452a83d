//! `host quantize`: a model directory into the same model with packed weights.

use std::io::Write;

use anyhow::{Context, Result};
use espalier_trainer::bytes::Bytes;
use espalier_trainer::config::{Need, ResolvedConfig, Sources, resolve};
use espalier_trainer::convert::{Converted, quantize};
use espalier_trainer::error::Error;
use espalier_trainer::observer::{Observer, Unobserved};
use espalier_trainer::stop::StopFlag;
use indicatif::MultiProgress;

use crate::arguments::{NewModelArguments, QuantizeArguments};
use crate::progress::Progress;
use crate::signals;

/// Packs and says what came of it.
pub fn run(arguments: &QuantizeArguments, bars: &MultiProgress, out: &mut dyn Write) -> Result<()> {
    let resolved = new_model_config(&arguments.model.sources())?;
    let done = watched(&arguments.model, bars, |observer, stop| {
        quantize::quantize(&resolved, observer, stop)
    })?;
    writeln!(
        out,
        "{} weights packed, {} tensors copied, {} -> {}",
        done.changed,
        done.copied,
        Bytes(done.bytes_before),
        Bytes(done.bytes_after)
    )?;
    Ok(())
}

/// The config of a command that makes a new model directory.
pub fn new_model_config(sources: &Sources) -> Result<ResolvedConfig> {
    let resolved = resolve(sources).map_err(Error::from)?;
    let needs = [Need::Model, Need::Out];
    resolved.require(&needs).map_err(Error::from)?;
    Ok(resolved)
}

/// Runs `work` with its progress shown, unless the user wants none.
pub fn watched(
    arguments: &NewModelArguments,
    bars: &MultiProgress,
    work: impl FnOnce(&dyn Observer, &StopFlag) -> Result<Converted, Error>,
) -> Result<Converted> {
    let stop = StopFlag::new();
    signals::watch(&stop).context("cannot watch for signals")?;
    let progress = Progress::new(bars);
    let observer: &dyn Observer = match arguments.quiet {
        true => &Unobserved,
        false => &progress,
    };
    Ok(work(observer, &stop)?)
}
