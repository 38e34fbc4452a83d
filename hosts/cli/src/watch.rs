//! What every long command does: it stops when it is asked to, and shows how far it is.

use anyhow::{Context, Result};
use espalier_trainer::call_watch;
use espalier_trainer::error::Error;
use espalier_trainer::observer::{Observer, Unobserved};
use espalier_trainer::stop::StopFlag;
use indicatif::MultiProgress;

use crate::progress::Progress;
use crate::signals;

/// Runs `work` under a flag that signals set, with its progress on `bars`, or unobserved where `quiet`. The bars are
/// gone when it returns.
pub fn watched<T>(
    quiet: bool,
    bars: &MultiProgress,
    work: impl FnOnce(&dyn Observer, &StopFlag) -> Result<T, Error>,
) -> Result<T> {
    let stop = StopFlag::new();
    signals::watch(&stop).context("cannot watch for signals")?;
    call_watch::heed(&stop);
    let progress = Progress::new(bars);
    let observer: &dyn Observer = match quiet {
        true => &Unobserved,
        false => &progress,
    };
    Ok(work(observer, &stop)?)
}
