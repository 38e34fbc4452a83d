//! Common to all long commands: they stop on request and show their progress.

use std::path::Path;

use anyhow::{Context, Result};
use espalier_engine::call_watch;
use espalier_engine::observer::{All, Observer, Unobserved};
use espalier_system::stop::StopFlag;

use crate::progress::{Progress, Warnings};
use crate::{display, events, hub, signals};

/// How much of its progress a command shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Showing {
    /// Bars or lines, and all messages.
    Progress,
    /// Under `--quiet`: warnings only.
    Warnings,
    /// Nothing: another process prints for this one.
    Nothing,
}

impl Showing {
    /// The level with `--quiet` applied, if given.
    pub fn unless_quiet(quiet: bool) -> Self {
        if quiet {
            Showing::Warnings
        } else {
            Showing::Progress
        }
    }
}

/// Runs `work` under a flag that signals set. Progress is shown on standard error as `shown` says,
/// and all of it in the log of the output directory `log`, if any. The bars are removed when it
/// returns.
pub fn watched<T, E: std::error::Error + Send + Sync + 'static>(
    shown: Showing,
    log: Option<&Path>,
    work: impl FnOnce(&dyn Observer, &StopFlag) -> Result<T, E>,
) -> Result<T> {
    let stop = StopFlag::new();
    signals::watch(&stop).context("cannot watch for signals")?;
    call_watch::heed(&stop);
    hub::heed(&stop);
    if let Some(out) = log {
        display::await_log(out);
    }
    let kept = log.map(|_| Progress::kept());
    let kept = kept.as_ref().map(|kept| kept as &dyn Observer);
    let progress = Progress::shown();
    let shown: &dyn Observer = match shown {
        Showing::Progress => &progress,
        Showing::Warnings => &Warnings,
        Showing::Nothing => &Unobserved,
    };
    let told = events::observer().unwrap_or(&Unobserved);
    let all = [shown, kept.unwrap_or(&Unobserved), told];
    Ok(work(&All(&all), &stop)?)
}
