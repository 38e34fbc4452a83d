//! The status of a rank of this process, set by its threads and read by the watch.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::ranks::lost::CallPosition;

/// Calls that are remembered after they are entered.
const REMEMBERED: usize = 16;

/// A call that ranks make together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The group's name: calls are numbered group by group, and equal numbers are the same call.
    pub group: String,
    /// Its number.
    pub seq: u64,
    /// Its operation and data: ``all_gather `unit 3` 4096 bytes``.
    pub what: String,
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "call {} of {}, {}", self.seq, self.group, self.what)
    }
}

/// A call that a rank is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The call.
    pub call: Call,
    /// Milliseconds since it was entered.
    pub ms: u64,
}

/// The status of a rank. It has ages in place of times, so that it can be sent to other processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The rank.
    pub rank: u32,
    /// The optimizer step that it is in; 0 before the first.
    pub step: u64,
    /// Milliseconds since its last heartbeat.
    pub quiet_ms: u64,
    /// The system call that it is in, which may take long.
    pub busy: Option<String>,
    /// The calls that its threads are in.
    pub open: Vec<OpenCall>,
    /// The calls that it entered last, the newest at the end.
    pub entered: Vec<Call>,
}

impl Report {
    /// The same, `ms` later.
    pub fn aged(mut self, ms: u64) -> Self {
        self.quiet_ms += ms;
        self.open.iter_mut().for_each(|open| open.ms += ms);
        self
    }

    /// The same, with no age above `ms`, the time that the watch has run.
    pub fn capped(mut self, ms: u64) -> Self {
        self.quiet_ms = self.quiet_ms.min(ms);
        self.open
            .iter_mut()
            .for_each(|open| open.ms = open.ms.min(ms));
        self
    }

    /// Where the rank is among its calls.
    pub fn place(&self) -> CallPosition {
        match (self.open.first(), self.entered.last()) {
            (Some(open), _) => CallPosition::In(open.call.to_string()),
            (None, Some(last)) => CallPosition::After(last.to_string()),
            (None, None) => CallPosition::Start,
        }
    }
}

/// The status of a rank of this process. Times are milliseconds of the watch's clock.
#[derive(Default)]
pub struct RankStatus {
    step: AtomicU64,
    alive: AtomicU64,
    /// Threads that act for the rank.
    acting: AtomicU64,
    work: Mutex<Work>,
}

#[derive(Default)]
struct Work {
    next: u64,
    open: Vec<(u64, Call, u64)>,
    entered: VecDeque<Call>,
    busy: Vec<(u64, String)>,
}

impl RankStatus {
    /// A heartbeat.
    pub fn beat(&self, now: u64) {
        self.alive.store(now, Ordering::Relaxed);
    }

    /// The rank is in optimizer step `step`.
    pub fn step(&self, step: u64, now: u64) {
        self.step.store(step, Ordering::Relaxed);
        self.beat(now);
    }

    /// A thread begins to act for the rank.
    pub fn begin(&self, now: u64) {
        self.beat(now);
        self.acting.fetch_add(1, Ordering::SeqCst);
    }

    /// That thread is done.
    pub fn end(&self, now: u64) {
        self.beat(now);
        self.acting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a thread acts for the rank.
    pub fn acts(&self) -> bool {
        self.acting.load(Ordering::SeqCst) > 0
    }

    /// The rank enters `call`; the number is for [`RankStatus::leave`].
    pub fn enter(&self, call: Call, now: u64) -> u64 {
        self.beat(now);
        let mut work = self.work();
        if work.entered.len() == REMEMBERED {
            work.entered.pop_front();
        }
        work.entered.push_back(call.clone());
        let id = work.next();
        work.open.push((id, call, now));
        id
    }

    /// The rank is done with the call `id`.
    pub fn leave(&self, id: u64, now: u64) {
        self.beat(now);
        self.work().open.retain(|(open, ..)| *open != id);
    }

    /// The rank begins a system call that may take long; the number is for [`RankStatus::free`].
    pub fn busy(&self, what: &str, now: u64) -> u64 {
        self.beat(now);
        let mut work = self.work();
        let id = work.next();
        work.busy.push((id, what.to_owned()));
        id
    }

    /// The system call `id` is done.
    pub fn free(&self, id: u64, now: u64) {
        self.beat(now);
        self.work().busy.retain(|(busy, _)| *busy != id);
    }

    /// The report of this status, for `rank`.
    pub fn report(&self, rank: u32, now: u64) -> Report {
        let work = self.work();
        let open = work.open.iter().map(|(_, call, since)| OpenCall {
            call: call.clone(),
            ms: now.saturating_sub(*since),
        });
        Report {
            rank,
            step: self.step.load(Ordering::Relaxed),
            quiet_ms: now.saturating_sub(self.alive.load(Ordering::Relaxed)),
            busy: work.busy.first().map(|(_, what)| what.clone()),
            open: open.collect(),
            entered: work.entered.iter().cloned().collect(),
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        // A rank that panics while it holds the lock leaves consistent lists.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
