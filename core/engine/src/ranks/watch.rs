//! The health of all ranks: heartbeats -> the first rank that is lost, reported to all.
//!
//! A process has one watch. Its ranks report their status to it, and its thread checks them several
//! times a second. The first loss counts: the groups are aborted, so that waiting calls
//! return, and every rank fails with it. Where a thread still does not return, the watch ends the
//! process itself (see [`on_last_word`](crate::last_word::on_last_word)).

mod diagnosis;
mod link;
mod mesh;
mod message;
mod monitor;
mod rank_status;
mod shared;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use espalier_interface::PluginError;
use espalier_system::failure::UsageError;
use espalier_system::stop::StopFlag;
use espalier_system::world::World;

use self::mesh::{Introduction, Post};
use self::rank_status::{Call, RankStatus};
use self::shared::{Meeting, Shared};
use super::gathering::Gathering;
use super::lost::{Lost, LostBy};
use crate::Error;

/// How long a failed call waits for the cause.
const BLAME_WAIT: Duration = Duration::from_millis(1500);

/// The watch of a process.
pub struct Watch {
    shared: Arc<Shared>,
    monitor: Mutex<Option<JoinHandle<()>>>,
}

/// A rank is in a call until this is dropped.
pub struct InCall<'a> {
    watch: &'a Watch,
    rank: u32,
    id: u64,
}

/// A thread acts for a rank until this is dropped.
pub struct Acting<'a> {
    watch: &'a Watch,
    rank: u32,
}

/// A rank is in a system call that may take long until this is dropped.
pub struct Busy<'a> {
    watch: &'a Watch,
    rank: u32,
    id: u64,
}

impl Watch {
    /// Watches this process's ranks of `world`. A rank that is silent for `timeout` while others
    /// wait counts as hanging. `stop` says that a signal asked the process to end, which shortens
    /// the time it has.
    pub fn start(world: World, timeout: Duration, stop: &StopFlag) -> Arc<Watch> {
        let statuses = world.own_ranks().map(|_| RankStatus::default());
        let shared = Arc::new(Shared {
            world,
            timeout,
            start: Instant::now(),
            stop: stop.clone(),
            statuses: statuses.collect(),
            since: AtomicU64::new(0),
            met: AtomicBool::new(world.processes == 1),
            meeting: Mutex::default(),
            links: Mutex::default(),
            first_lost: Mutex::default(),
            lost_changed: Condvar::new(),
        });
        let monitor = (world.ranks > 1).then(|| monitor::start(Arc::clone(&shared)));
        Arc::new(Watch {
            shared,
            monitor: Mutex::new(monitor),
        })
    }

    /// A watch of a single rank.
    pub fn alone() -> Arc<Watch> {
        Watch::start(World::ONE, Duration::MAX, &StopFlag::new())
    }

    /// From now on the processes have to join `within` that time. It covers a collective's start,
    /// such as MPI's, and all until [`Watch::meet`] returns. Else this process ends (see
    /// [`on_last_word`](crate::last_word::on_last_word)) and names the processes that did not join,
    /// where they are known.
    pub fn meet_within(&self, within: Duration) {
        let world = self.shared.world;
        if world.processes > 1 {
            let meeting = Meeting {
                within,
                since: Instant::now(),
                gathering: Gathering::enter(world),
            };
            *self.shared.meeting() = Some(meeting);
        }
    }

    /// Connects this watch with those of the other processes. `exchange` sends a message to all
    /// processes and returns each one's message. From then on a process that ended, stopped or
    /// silent counts as lost.
    ///
    /// # Errors
    /// The error of `exchange`. `Error::Peer` for a process that cannot be reached.
    pub fn meet(
        &self,
        exchange: impl FnOnce(&[u8]) -> Result<Vec<Vec<u8>>, Error>,
    ) -> Result<(), Error> {
        let world = self.shared.world;
        if world.processes == 1 {
            return Ok(());
        }
        let post = Post::open().map_err(|error| {
            Error::Usage(UsageError {
                message: format!("this process cannot watch the others: {error}"),
                next_step: "check its network and its limit of open files".to_owned(),
            })
        })?;
        let sent = serde_json::to_vec(&post.introduction).expect("an introduction is plain data");
        let received = exchange(&sent)?;
        let all: Option<Vec<Introduction>> = received
            .iter()
            .map(|sent| serde_json::from_slice(sent).ok())
            .collect();
        let all = all.filter(|all| all.len() == world.processes as usize);
        let all = all.ok_or_else(|| {
            let what = format!("{} processes, found {}", world.processes, received.len());
            Error::Peer(Lost::of(
                0,
                LostBy::Disagrees(format!("expected an introduction of each of {what}")),
            ))
        })?;
        let now = self.shared.now();
        let links = post.meet(world, &all, now)?;
        self.shared.seeing_since(self.shared.now());
        *self.shared.links() = links;
        self.shared.met.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// A heartbeat of `rank`, one of this process.
    pub fn beat(&self, rank: u32) {
        self.status(rank).beat(self.shared.now());
    }

    /// `rank` begins optimizer step `step`, counted from 1.
    pub fn step(&self, rank: u32, step: u64) {
        self.status(rank).step(step, self.shared.now());
    }

    /// A thread begins to act for `rank`, until the result is dropped. While no thread acts for any
    /// rank, the main thread works (it writes a checkpoint or reads weights) and no rank counts as
    /// hanging.
    pub fn acts(&self, rank: u32) -> Acting<'_> {
        self.status(rank).begin(self.shared.now());
        Acting { watch: self, rank }
    }

    /// `rank` makes call `seq` of `group`: ``all_gather `unit 3` 4096 bytes``. All members of a
    /// group number its calls alike. The call ends when the result is dropped.
    pub fn enter(&self, rank: u32, group: &str, seq: u64, what: &str) -> InCall<'_> {
        let id = self.enter_open(rank, group, seq, what);
        InCall {
            watch: self,
            rank,
            id,
        }
    }

    /// As [`Watch::enter`], of a call that ends with [`Watch::leave`] of the number that is
    /// returned.
    pub fn enter_open(&self, rank: u32, group: &str, seq: u64, what: &str) -> u64 {
        let call = Call {
            group: group.to_owned(),
            seq,
            what: what.to_owned(),
        };
        self.status(rank).enter(call, self.shared.now())
    }

    /// `rank` is done with the call `id` of [`Watch::enter_open`].
    pub fn leave(&self, rank: u32, id: u64) {
        self.status(rank).leave(id, self.shared.now());
    }

    /// `rank` begins `what`, a system call that may take long. It does not count as hanging until
    /// the result is dropped.
    pub fn busy(&self, rank: u32, what: &str) -> Busy<'_> {
        let id = self.status(rank).busy(what, self.shared.now());
        Busy {
            watch: self,
            rank,
            id,
        }
    }

    /// `rank`, one of this process, fails. All others are informed.
    pub fn failed(&self, rank: u32, what: impl Into<String>) {
        self.shared
            .conclude(self.shared.placed(Lost::reported(rank, what)));
    }

    /// Calls `abort` once a rank is lost; at once, where one is.
    pub fn on_abort(&self, abort: impl Fn() + Send + Sync + 'static) {
        let mut first = self.shared.first_lost();
        if first.lost.is_none() {
            first.on_abort.push(Box::new(abort));
            return;
        }
        drop(first);
        abort();
    }

    /// The first loss, once there is one.
    pub fn first_lost(&self) -> Option<Error> {
        self.shared.first_lost().lost.clone().map(Error::Peer)
    }

    /// The error of a collective call that failed for `rank`: the loss that caused it, or the
    /// call's own error where no loss is known.
    pub fn blame(&self, rank: u32, error: &PluginError) -> Error {
        let first = self.shared.first_lost();
        let waited = self
            .shared
            .lost_changed
            .wait_timeout_while(first, BLAME_WAIT, |v| v.lost.is_none());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        if self.shared.first_lost().lost.is_none() {
            self.failed(rank, error.message.clone());
        }
        self.first_lost().expect("one fell")
    }

    fn status(&self, rank: u32) -> &RankStatus {
        let first = self.shared.world.own_ranks().start;
        &self.shared.statuses[(rank - first) as usize]
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.failed(self.shared.world.own_ranks().start, "its process panicked");
        }
        self.shared.first_lost().over = true;
        self.shared.lost_changed.notify_all();
        let monitor = self
            .monitor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(monitor) = monitor {
            // It returns nothing, and a panic was printed.
            let _ = monitor.join();
        }
    }
}

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        let now = self.watch.shared.now();
        self.watch.status(self.rank).leave(self.id, now);
    }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        let now = self.watch.shared.now();
        self.watch.status(self.rank).end(now);
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let now = self.watch.shared.now();
        self.watch.status(self.rank).free(self.id, now);
    }
}

#[cfg(test)]
mod tests;
