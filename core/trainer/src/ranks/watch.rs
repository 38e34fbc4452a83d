//! Who is alive: signs of life of the ranks -> the first one that is lost, told to all.
//!
//! A process has one watch. Its ranks tell it what they are at; a thread of its own judges that several times a second. The
//! first loss is the verdict: the groups are aborted, so that calls that wait return, and every rank fails with it. Where a
//! thread does not return for all that, the watch ends the process itself (see [`on_last_word`]).

mod judge;
mod keeper;
mod seat;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use espalier_interface::PluginError;

use self::seat::{Call, Report, Seat};
use super::World;
use super::lost::Lost;
use crate::Error;
use crate::stop::StopFlag;

/// How long a failed call waits to hear who is at fault.
const HEARSAY: Duration = Duration::from_millis(1500);

/// Says an error for good and ends the process with its exit code.
type LastWord = Box<dyn Fn(&Error) + Send + Sync>;

static LAST_WORD: OnceLock<LastWord> = OnceLock::new();

/// Sets what ends this process where a rank is lost and a thread hangs: it prints the error as the last line and exits at
/// once, running nothing else. Without it such a thread is waited for. The first one set stays.
pub fn on_last_word(say: impl Fn(&Error) + Send + Sync + 'static) {
    let _ = LAST_WORD.set(Box::new(say));
}

/// The watch of a process.
pub struct Watch {
    shared: Arc<Shared>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// What the watch's own thread sees, too.
struct Shared {
    world: World,
    timeout: Duration,
    start: Instant,
    stop: StopFlag,
    seats: Vec<Seat>,
    verdict: Mutex<Verdict>,
    told: Condvar,
}

#[derive(Default)]
struct Verdict {
    lost: Option<Lost>,
    /// When it fell.
    since: Option<Instant>,
    on_abort: Vec<Box<dyn Fn() + Send + Sync>>,
    /// The watch is dropped.
    over: bool,
}

/// A rank is in a call until this is dropped.
pub struct InCall<'a> {
    watch: &'a Watch,
    rank: u32,
    id: u64,
}

/// A rank is in a system call that may take long until this is dropped.
pub struct Busy<'a> {
    watch: &'a Watch,
    rank: u32,
    id: u64,
}

impl Watch {
    /// Watches this process's ranks of `world`; a rank hangs that is silent for `timeout` while others wait. `stop` tells that
    /// a signal asked the process to end: then it does not have long.
    pub fn start(world: World, timeout: Duration, stop: &StopFlag) -> Arc<Watch> {
        let seats = world.own_ranks().map(|_| Seat::default());
        let shared = Arc::new(Shared {
            world,
            timeout,
            start: Instant::now(),
            stop: stop.clone(),
            seats: seats.collect(),
            verdict: Mutex::default(),
            told: Condvar::new(),
        });
        let keeper = (world.ranks > 1).then(|| keeper::start(Arc::clone(&shared)));
        Arc::new(Watch {
            shared,
            keeper: Mutex::new(keeper),
        })
    }

    /// A watch of one rank, that nobody can lose.
    pub fn alone() -> Arc<Watch> {
        Watch::start(World::ONE, Duration::MAX, &StopFlag::new())
    }

    /// A sign of life of `rank`, one of this process.
    pub fn beat(&self, rank: u32) {
        self.seat(rank).beat(self.shared.now());
    }

    /// `rank` begins optimizer step `step`, counted from 1.
    pub fn step(&self, rank: u32, step: u64) {
        self.seat(rank).step(step, self.shared.now());
    }

    /// `rank` makes call `seq` of `group`: ``all_gather `unit 3` 4096 bytes``. All members of a group number its calls alike.
    /// It is left when what is returned is dropped.
    pub fn enter(&self, rank: u32, group: &str, seq: u64, what: &str) -> InCall<'_> {
        let call = Call {
            group: group.to_owned(),
            seq,
            what: what.to_owned(),
        };
        let id = self.seat(rank).enter(call, self.shared.now());
        InCall {
            watch: self,
            rank,
            id,
        }
    }

    /// `rank` begins `what`, a call of the system that may take long: it does not hang until what is returned is dropped.
    pub fn busy(&self, rank: u32, what: &str) -> Busy<'_> {
        let id = self.seat(rank).busy(what, self.shared.now());
        Busy {
            watch: self,
            rank,
            id,
        }
    }

    /// `rank`, one of this process, fails: all others are told.
    pub fn failed(&self, rank: u32, what: impl Into<String>) {
        let lost = Lost {
            rank,
            ..Lost::told(rank, what)
        };
        self.shared.conclude(self.shared.placed(lost));
    }

    /// Calls `abort` once a rank is lost; at once, where one is.
    pub fn on_abort(&self, abort: impl Fn() + Send + Sync + 'static) {
        let mut verdict = self.shared.verdict();
        if verdict.lost.is_none() {
            verdict.on_abort.push(Box::new(abort));
            return;
        }
        drop(verdict);
        abort();
    }

    /// The first loss, once there is one.
    pub fn verdict(&self) -> Option<Error> {
        self.shared.verdict().lost.clone().map(Error::Peer)
    }

    /// The error of a call among ranks that failed for `rank`: the loss that made it fail, or itself where none is heard of.
    pub fn blame(&self, rank: u32, error: &PluginError) -> Error {
        let verdict = self.shared.verdict();
        let waited = self
            .shared
            .told
            .wait_timeout_while(verdict, HEARSAY, |v| v.lost.is_none());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        if self.shared.verdict().lost.is_none() {
            self.failed(rank, error.message.clone());
        }
        self.verdict().expect("one fell")
    }

    fn seat(&self, rank: u32) -> &Seat {
        let first = self.shared.world.own_ranks().start;
        &self.shared.seats[(rank - first) as usize]
    }
}

impl Shared {
    /// Milliseconds of the watch's clock.
    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// What the ranks of this process are at.
    fn reports(&self) -> Vec<Report> {
        let now = self.now();
        let ranks = self.world.own_ranks().zip(&self.seats);
        ranks.map(|(rank, seat)| seat.report(rank, now)).collect()
    }

    /// `lost`, a rank of this process, with where it is.
    fn placed(&self, lost: Lost) -> Lost {
        let reports = self.reports();
        let own = reports.iter().find(|report| report.rank == lost.rank);
        Lost {
            step: own.map_or(0, |report| report.step),
            place: own.map(Report::place).unwrap_or_default(),
            waiting: judge::longest_waiting(&reports, lost.rank),
            ..lost
        }
    }

    /// Makes `lost` the verdict, unless there is one, and aborts the groups.
    fn conclude(&self, lost: Lost) {
        let mut verdict = self.verdict();
        if verdict.lost.is_some() {
            return;
        }
        tracing::debug!("lost: {lost}");
        verdict.lost = Some(lost);
        verdict.since = Some(Instant::now());
        let aborts = std::mem::take(&mut verdict.on_abort);
        drop(verdict);
        self.told.notify_all();
        aborts.iter().for_each(|abort| abort());
    }

    fn verdict(&self) -> MutexGuard<'_, Verdict> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.verdict().over = true;
        self.shared.told.notify_all();
        let keeper = self
            .keeper
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(keeper) = keeper {
            // It has nothing to say; that it panicked would have been printed.
            let _ = keeper.join();
        }
    }
}

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        let now = self.watch.shared.now();
        self.watch.seat(self.rank).leave(self.id, now);
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let now = self.watch.shared.now();
        self.watch.seat(self.rank).free(self.id, now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn watch(ranks: u32, timeout_ms: u64) -> Arc<Watch> {
        let timeout = Duration::from_millis(timeout_ms);
        Watch::start(World::threads(ranks), timeout, &StopFlag::new())
    }

    fn await_verdict(watch: &Watch) -> Lost {
        let begun = Instant::now();
        loop {
            match watch.verdict() {
                Some(Error::Peer(lost)) => return lost,
                _ => assert!(begun.elapsed().as_secs() < 5, "no verdict"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_rank_that_fails_is_told_to_all_once() {
        let watch = watch(2, 60_000);
        let aborted = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&aborted);
        watch.on_abort(move || _ = count.fetch_add(1, Ordering::SeqCst));
        watch.step(1, 4);
        drop(watch.enter(1, "shards", 9, "all_gather `unit 2`"));
        watch.failed(1, "it panicked");
        watch.failed(0, "a rank was lost");
        let error = watch.verdict().expect("told");
        assert_eq!(error.exit_code(), 6);
        assert_eq!(
            error.to_string(),
            "rank 1, step 4, after call 9 of shards, all_gather `unit 2`: it failed: it panicked"
        );
        assert_eq!(aborted.load(Ordering::SeqCst), 1);
        let count = Arc::clone(&aborted);
        watch.on_abort(move || _ = count.fetch_add(1, Ordering::SeqCst));
        assert_eq!(
            aborted.load(Ordering::SeqCst),
            2,
            "who comes late is told at once"
        );
    }

    #[test]
    fn a_hanging_thread_is_found_while_others_wait_and_a_busy_one_is_not() {
        let watch = watch(3, 400);
        let _waits = watch.enter(0, "world", 1, "all_reduce `norm`");
        let _waits_too = watch.enter(2, "world", 1, "all_reduce `norm`");
        let busy = watch.busy(1, "fsync");
        std::thread::sleep(Duration::from_millis(900));
        assert!(watch.verdict().is_none());
        drop(busy);
        let lost = await_verdict(&watch);
        assert_eq!(lost.rank, 1);
        assert_eq!(
            lost.waiting,
            Some((0, "call 1 of world, all_reduce `norm`".into()))
        );
        let begun = Instant::now();
        let blamed = watch.blame(
            0,
            &PluginError::new(espalier_interface::ErrorCode::PEER, "aborted"),
        );
        assert!(matches!(blamed, Error::Peer(lost) if lost.rank == 1));
        assert!(begun.elapsed() < Duration::from_millis(500));
    }
}
