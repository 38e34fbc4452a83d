//! Plugin calls that do not return -> a warning that names the call, and after the time limit the
//! end of the process.
//!
//! A thread cannot be ended from outside, so a call that hangs can only be ended with its process.
//! The host program decides that: it starts the watch and sets how the process ends (see
//! [`on_last_word`](crate::last_word::on_last_word)). The trainer as a library watches nothing by
//! itself.

mod call_times;
mod hung;

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use espalier_interface::abi::call_site;
use espalier_system::notice;
use espalier_system::stop::StopFlag;

use self::call_times::{Action, CallTimes};
pub use self::hung::Hung;
use crate::Error;
use crate::last_word::last_word;

/// Interval between two checks.
const TICK: Duration = Duration::from_millis(100);

/// Most time that one interval counts. A process that was stopped meanwhile did not wait.
const COUNTED: Duration = Duration::from_secs(1);

/// The stop flag of the current work, which signals set.
static STOP: Mutex<Option<StopFlag>> = Mutex::new(None);

/// The late call, where there is one.
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

/// Starts the watch of this process's plugin calls. A second start does nothing.
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

/// Reports the pending call once `stop` asks to stop. Of several flags the last counts.
pub fn heed(stop: &StopFlag) {
    *locked(&STOP) = Some(stop.clone());
}

/// The call that the process waits for now: one without progress for at least a second.
pub fn late() -> Option<LateCall> {
    locked(&LATE).clone()
}

fn run() {
    let mut times = CallTimes::default();
    let mut looked = Instant::now();
    loop {
        thread::sleep(TICK);
        let passed = looked.elapsed().min(COUNTED);
        looked = Instant::now();
        let asked = locked(&STOP).as_ref().and_then(StopFlag::requested);
        let (actions, late) = times.look(&call_site::pending(), passed, asked);
        *locked(&LATE) = late;
        for action in actions {
            match action {
                Action::Say(line) => notice::say(&line),
                Action::End(call, limited_by) => end(call, limited_by),
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
