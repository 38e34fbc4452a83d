//! Calls of plugins that do not return -> what is waited for, said in time, and the end of a process that waits too long.
//!
//! A thread cannot be ended from outside, so that a call that hangs can only be ended with its process. That is the host's to
//! do: it starts the watch, and sets what has the last word (see [`on_last_word`](crate::last_word::on_last_word)). The trainer as
//! a library watches nothing by itself.

mod hung;
mod judge;

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use espalier_interface::abi::call_site;
use espalier_system::notice;
use espalier_system::stop::StopFlag;

pub use self::hung::Hung;
use self::judge::{Judge, Verdict};
use crate::Error;
use crate::last_word::last_word;

/// Time between two looks.
const TICK: Duration = Duration::from_millis(100);

/// What counts of the time between two looks at most: a process that was stopped did not wait meanwhile.
const COUNTED: Duration = Duration::from_secs(1);

/// What signals set, of the work at hand.
static STOP: Mutex<Option<StopFlag>> = Mutex::new(None);

/// The call that is waited for, where there is one.
static LATE: Mutex<Option<LateCall>> = Mutex::new(None);

/// A plugin's call that has shown no sign of progress for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateCall {
    /// The component's name.
    pub plugin: String,
    /// Its library; none where it is linked.
    pub file: Option<PathBuf>,
    /// The call, such as `encode`.
    pub callback: String,
    /// What it is about, such as a weight's name, where that is known.
    pub subject: Option<String>,
    /// Seconds without a sign of progress.
    pub secs: u64,
}

impl std::fmt::Display for LateCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "plugin `{}` (", self.plugin)?;
        match &self.file {
            Some(file) => write!(f, "{}", file.display())?,
            None => f.write_str("linked")?,
        }
        write!(f, ") in {}", self.callback)?;
        match &self.subject {
            Some(subject) => write!(f, " of `{subject}`"),
            None => Ok(()),
        }
    }
}

/// Starts the watch of this process's calls; a second start does nothing.
///
/// # Errors
/// Where the operating system starts no more threads.
pub fn start() -> io::Result<()> {
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.set(()).is_err() {
        return Ok(());
    }
    let watch = thread::Builder::new().name("call-watch".into());
    watch.spawn(run).map(drop)
}

/// Says what is waited for once `stop` asks to stop. Of several flags the last counts.
pub fn heed(stop: &StopFlag) {
    *locked(&STOP) = Some(stop.clone());
}

/// The call that is waited for now: without a sign of progress for a second at least.
pub fn late() -> Option<LateCall> {
    locked(&LATE).clone()
}

fn run() {
    let mut judge = Judge::default();
    let mut looked = Instant::now();
    loop {
        thread::sleep(TICK);
        let passed = looked.elapsed().min(COUNTED);
        looked = Instant::now();
        let asked = locked(&STOP).as_ref().and_then(StopFlag::requested);
        let (verdicts, late) = judge.look(&call_site::pending(), passed, asked);
        *locked(&LATE) = late;
        for verdict in verdicts {
            match verdict {
                Verdict::Say(line) => notice::say(&line),
                Verdict::End(call, limited_by) => end(call, limited_by),
            }
        }
    }
}

fn end(call: LateCall, limited_by: &'static str) {
    let error = Error::Hung(Hung {
        call: Box::new(call),
        limited_by,
    });
    match last_word() {
        Some(say) => say(&error),
        None => tracing::error!("{error}"),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
