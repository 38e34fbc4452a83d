//! What every long command does: it stops when it is asked to, and shows how far it is.

use anyhow::{Context, Result};
use espalier_trainer::call_watch;
use espalier_trainer::error::Error;
use espalier_trainer::observer::{Observer, Unobserved};
use espalier_trainer::stop::StopFlag;
use indicatif::MultiProgress;

use crate::progress::{Progress, Warnings};
use crate::signals;

/// How much of its progress a command shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Showing {
    /// Bars or lines, and all that is told.
    Progress,
    /// Under `--quiet`: what must not be missed.
    Warnings,
    /// Nothing: another process speaks for this one.
    Nothing,
}

impl Showing {
    /// What `--quiet`, if given, leaves of it.
    pub fn unless_quiet(quiet: bool) -> Self {
        match quiet {
            true => Showing::Warnings,
            false => Showing::Progress,
        }
    }
}

/// Runs `work` under a flag that signals set, with as much of its progress on `bars` as `shown` says. The bars are gone when
/// it returns.
pub fn watched<T>(
    shown: Showing,
    bars: &MultiProgress,
    work: impl FnOnce(&dyn Observer, &StopFlag) -> Result<T, Error>,
) -> Result<T> {
    let stop = StopFlag::new();
    signals::watch(&stop).context("cannot watch for signals")?;
    call_watch::heed(&stop);
    let progress = Progress::new(bars);
    let observer: &dyn Observer = match shown {
        Showing::Progress => &progress,
        Showing::Warnings => &Warnings,
        Showing::Nothing => &Unobserved,
    };
    Ok(work(observer, &stop)?)
}
