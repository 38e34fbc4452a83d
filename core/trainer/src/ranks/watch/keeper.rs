//! The watch's own thread: judges what the ranks are at, and ends the process where a thread does not come back.

use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{LAST_WORD, Shared, judge};
use crate::Error;

/// Time between two looks at most.
const TICK: Duration = Duration::from_millis(100);

/// How long the ranks have to come back with their error, before the process is ended for them.
const GRACE: Duration = Duration::from_millis(1000);

/// The same where a signal asked the process to end: launchers kill for good a second later.
const SHORT_GRACE: Duration = Duration::from_millis(250);

/// Starts the thread; it ends when the watch is dropped.
pub fn start(shared: Arc<Shared>) -> JoinHandle<()> {
    thread::Builder::new()
        .name("watch".into())
        .spawn(move || while look(&shared) {})
        .expect("a process that starts ranks can start one more thread")
}

/// Looks once and waits for the next time; false when the watch is over.
fn look(shared: &Shared) -> bool {
    let tick = TICK.min(shared.timeout / 8);
    let verdict = shared.verdict();
    let waited = shared
        .told
        .wait_timeout_while(verdict, tick, |verdict| !verdict.over);
    let (verdict, _) = waited.unwrap_or_else(PoisonError::into_inner);
    if verdict.over {
        return false;
    }
    let grace = match shared.stop.requested() {
        Some(_) => SHORT_GRACE,
        None => GRACE,
    };
    let late = verdict.since.is_some_and(|since| since.elapsed() >= grace);
    let lost = verdict.lost.clone();
    drop(verdict);
    match (lost, LAST_WORD.get()) {
        (Some(lost), Some(say)) if late => say(&Error::Peer(lost)),
        (Some(_), _) => {}
        (None, _) => {
            let timeout_ms = shared.timeout.as_millis() as u64;
            if let Some(lost) = judge::judge(&shared.reports(), timeout_ms) {
                shared.conclude(lost);
            }
        }
    }
    true
}
