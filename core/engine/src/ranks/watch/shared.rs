//! The state that ranks and the watch's thread share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use espalier_system::stop::StopFlag;
use espalier_system::world::World;

use super::diagnosis;
use super::link::{Link, State};
use super::mesh;
use super::rank_status::{RankStatus, Report};
use crate::ranks::gathering::Gathering;
use crate::ranks::lost::Lost;

/// What ranks are reported to do while no thread of their process acts for them.
const RESTING: &str = "the work of its process";

/// State that is shared with the watch's thread.
pub(super) struct Shared {
    pub(super) world: World,
    pub(super) timeout: Duration,
    pub(super) start: Instant,
    pub(super) stop: StopFlag,
    pub(super) statuses: Vec<RankStatus>,
    /// Time in milliseconds since when the watch has run without a gap. Before, every rank seems
    /// silent.
    pub(super) since: AtomicU64,
    /// Whether the processes are connected. Before, nothing else can end a process that waits.
    pub(super) met: AtomicBool,
    /// By when the processes have to be connected.
    pub(super) meeting: Mutex<Option<Meeting>>,
    /// The other processes.
    pub(super) links: Mutex<Vec<Link>>,
    pub(super) first_lost: Mutex<FirstLost>,
    pub(super) lost_changed: Condvar,
}

/// How long this process waits for the others to join.
pub(super) struct Meeting {
    pub(super) within: Duration,
    pub(super) since: Instant,
    pub(super) gathering: Gathering,
}

#[derive(Default)]
pub(super) struct FirstLost {
    pub(super) lost: Option<Lost>,
    /// When the loss was found.
    pub(super) since: Option<Instant>,
    pub(super) on_abort: Vec<Box<dyn Fn() + Send + Sync>>,
    /// The watch is dropped.
    pub(super) over: bool,
}

impl Shared {
    /// Milliseconds of the watch's clock.
    pub(super) fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// The watch did not run before `now`.
    pub(super) fn seeing_since(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
    }

    pub(super) fn seen_since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    /// The status of this process's ranks.
    pub(super) fn reports(&self) -> Vec<Report> {
        let now = self.now();
        let seen = now.saturating_sub(self.seen_since());
        let ranks = self.world.own_ranks().zip(&self.statuses);
        let reports = ranks.map(|(rank, status)| status.report(rank, now).capped(seen));
        let mut reports: Vec<Report> = reports.collect();
        if !self.statuses.iter().any(RankStatus::acts) {
            for report in &mut reports {
                report.busy.get_or_insert_with(|| RESTING.to_owned());
            }
        }
        reports
    }

    /// The status of the ranks of all running processes.
    pub(super) fn all_reports(&self, links: &[Link], now: u64) -> Vec<Report> {
        let seen = now.saturating_sub(self.seen_since());
        let open = links.iter().filter(|link| link.state == State::Open);
        let others = open.flat_map(|link| link.reports(now));
        let mut reports = self.reports();
        reports.extend(others.map(|report| report.capped(seen)));
        reports
    }

    /// The number of this process and the name of its machine, where there are several.
    pub(super) fn own_process(&self) -> Option<(u32, String)> {
        (self.world.processes > 1).then(|| (self.world.process, mesh::host_name()))
    }

    pub(super) fn meeting(&self) -> MutexGuard<'_, Option<Meeting>> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn links(&self) -> MutexGuard<'_, Vec<Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `lost`, a rank of this process, with where it is.
    pub(super) fn placed(&self, lost: Lost) -> Lost {
        let reports = self.reports();
        let own = reports.iter().find(|report| report.rank == lost.rank);
        Lost {
            step: own.map_or(0, |report| report.step),
            place: own.map(Report::place).unwrap_or_default(),
            waiting: diagnosis::longest_waiting(&reports, lost.rank..lost.rank + 1),
            process: self.own_process(),
            ..lost
        }
    }

    /// Records `lost`, unless a rank was lost before, and aborts the groups.
    pub(super) fn conclude(&self, lost: Lost) {
        let mut first = self.first_lost();
        if first.lost.is_some() {
            return;
        }
        tracing::debug!("lost: {lost}");
        first.lost = Some(lost);
        first.since = Some(Instant::now());
        let aborts = std::mem::take(&mut first.on_abort);
        drop(first);
        self.lost_changed.notify_all();
        aborts.iter().for_each(|abort| abort());
    }

    pub(super) fn first_lost(&self) -> MutexGuard<'_, FirstLost> {
        self.first_lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
