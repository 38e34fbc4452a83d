//! The ranks of this process, each with a thread and a device of its own.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use espalier_data::{BatchSchedule, StepBatch};
use espalier_system::failure::{UsageError, chain};
use espalier_system::stop::StopFlag;
use espalier_system::world::World;

use crate::Error;
use crate::executor::{AdapterAside, DeviceWork, Executor};
use crate::not_finite::NotFinite;
use crate::ranks::{Lost, RankFailure, Reach};
use crate::step::{self, EvalOutcome, Look, StepOutcome, StepRows};

/// The executors of this process's ranks, in the order of the ranks.
pub struct Team(Vec<Executor>);

/// The requests of signals to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// To stop, by this signal.
    pub stop: Option<i32>,
    /// To save a checkpoint and continue.
    pub save: bool,
    /// Requests for a checkpoint that this process has had, this one included.
    pub saves_seen: usize,
}

impl Team {
    /// A team of these ranks, in their order.
    ///
    /// # Panics
    /// Where `executors` is empty.
    pub fn new(executors: Vec<Executor>) -> Self {
        assert!(!executors.is_empty(), "a process has a rank");
        Team(executors)
    }

    /// The work of the devices for the ranks of this process so far.
    pub fn device_work(&self) -> DeviceWork {
        let each = self.0.iter().map(Executor::device_work);
        each.fold(DeviceWork::default(), DeviceWork::and)
    }

    /// The most bytes that a rank of this process holds on its device; 0 where devices are the
    /// host.
    pub fn device_bytes(&self) -> u64 {
        self.0.iter().map(Executor::own_bytes).max().unwrap_or(0)
    }

    /// The first rank of this process.
    pub fn first(&self) -> &Executor {
        &self.0[0]
    }

    /// As [`Team::first`].
    pub fn first_mut(&mut self) -> &mut Executor {
        &mut self.0[0]
    }

    /// All ranks of this process.
    pub fn executors(&self) -> &[Executor] {
        &self.0
    }

    /// As [`Team::executors`], by value.
    pub fn into_executors(self) -> Vec<Executor> {
        self.0
    }

    /// All ranks of the run.
    pub fn world(&self) -> World {
        self.first().peers().world()
    }

    /// Does `act` on every rank of this process at once. Returns the results in the order of the
    /// ranks.
    ///
    /// # Errors
    /// The first failure. A rank that fails or panics aborts its groups, so that no other rank
    /// waits for it.
    pub fn each<T: Send, E: RankFailure>(
        &self,
        act: impl Fn(&Executor) -> Result<T, E> + Sync,
    ) -> Result<Vec<T>, E> {
        if let ([one], 1) = (&self.0[..], self.world().ranks) {
            return Ok(vec![act(one)?]);
        }
        let guarded = |executor: &Executor| {
            let _acting = executor.peers().acts();
            let done = catch_unwind(AssertUnwindSafe(|| act(executor)));
            let done =
                done.unwrap_or_else(|panic| Err(E::from(panicked(executor, panic.as_ref()))));
            done.map_err(|error| report_failure(executor, error))
        };
        let done: Vec<Result<T, E>> = std::thread::scope(|scope| {
            let ranks: Vec<_> = self
                .0
                .iter()
                .map(|executor| {
                    let name = format!("rank-{}", executor.peers().rank());
                    std::thread::Builder::new()
                        .name(name)
                        .spawn_scoped(scope, || guarded(executor))
                })
                .collect();
            let join =
                |spawned: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| match spawned {
                    Ok(rank) => rank.join().expect("panics are caught within"),
                    Err(error) => Err(E::from(Error::Usage(UsageError {
                        message: format!("no thread for a rank: {error}"),
                        next_step: "lower --ranks".to_owned(),
                    }))),
                };
            ranks.into_iter().map(join).collect()
        });
        let (given, failed): (Vec<_>, Vec<_>) = done.into_iter().partition(Result::is_ok);
        // Ranks that waited for a failed rank report that; the cause is the failed rank's error.
        let mut failed: Vec<E> = failed.into_iter().filter_map(Result::err).collect();
        failed.sort_by_key(|error| error.reach() == Reach::FromPeer);
        match failed.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(given.into_iter().filter_map(Result::ok).collect()),
        }
    }

    /// Tells the other processes that this one ends with `error`, unless they end with it too.
    pub fn give_up<E: RankFailure>(&self, error: &E) {
        if let Reach::ThisRank | Reach::Panic = error.reach() {
            self.first().peers().failed(&chain(error));
        }
    }

    /// Whether a rank is lost.
    pub fn has_lost(&self) -> bool {
        self.first().peers().has_lost()
    }

    /// Does step `index` (from 0) of a run.
    ///
    /// # Errors
    /// As [`step::train`].
    pub fn train(
        &self,
        optim: &espalier_config::OptimOptions,
        step: &StepBatch,
        at: [u64; 2],
        seed: u64,
    ) -> Result<StepOutcome, Error> {
        let outcomes = self.each(|executor| step::train(executor, optim, step, at, seed))?;
        Ok(outcomes[0])
    }

    /// Refuses to save or export numbers that are not finite, after `step` steps.
    ///
    /// # Errors
    /// As [`step::check_state`].
    pub fn check_finite(&self, step: u64) -> Result<(), Error> {
        self.each(|executor| step::check_state(executor, step))?;
        Ok(())
    }

    /// The mean loss over all rows of a schedule. `after` is called with the number of steps done,
    /// and may end it.
    ///
    /// # Errors
    /// As [`step::evaluate_step`]; the error of `after`.
    pub fn evaluate(
        &self,
        rows: &BatchSchedule,
        seed: u64,
        after: &mut dyn FnMut(u64) -> Result<(), Error>,
    ) -> Result<EvalOutcome, Error> {
        self.evaluate_steps(rows, seed, None, after)
    }

    /// As [`Team::evaluate`]; every rank passes the logits of its micro-batches to `look`.
    ///
    /// # Errors
    /// As [`Team::evaluate`]; the error of `look`.
    pub fn evaluate_looking(
        &self,
        rows: &BatchSchedule,
        seed: u64,
        look: Look<'_>,
        after: &mut dyn FnMut(u64) -> Result<(), Error>,
    ) -> Result<EvalOutcome, Error> {
        self.evaluate_steps(rows, seed, Some(look), after)
    }

    fn evaluate_steps(
        &self,
        rows: &BatchSchedule,
        seed: u64,
        look: Option<Look<'_>>,
        after: &mut dyn FnMut(u64) -> Result<(), Error>,
    ) -> Result<EvalOutcome, Error> {
        let mut each = |step: &StepBatch, at: StepRows| {
            let mut found = self.each(|executor| step::evaluate_step(executor, step, at, look))?;
            Ok(found.swap_remove(0))
        };
        step::evaluate_steps(rows, seed, &mut each, after)
    }

    /// Does `act` while the adapter has no effect on any rank. Params that begin with zeros or ones
    /// are set so, and restored afterwards bit for bit. Params that begin from a weight must be as
    /// they began.
    ///
    /// # Errors
    /// [`Error::Plugin`]: a call to the backend failed. The error of `act`.
    pub fn without_adapter<T>(&self, act: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let aside: Vec<AdapterAside> = self.each(Executor::set_adapter_aside)?;
        let done = act();
        for (executor, aside) in self.0.iter().zip(&aside) {
            executor.put_adapter_back(aside)?;
        }
        done
    }

    /// The error for an evaluation whose loss is not finite. One rank alone looks for the first
    /// step that has such a loss.
    pub fn evaluation_not_finite(&self, rows: &BatchSchedule, seed: u64) -> Error {
        match self.world().ranks {
            1 => step::evaluation_not_finite(self.first(), rows, seed),
            _ => Error::NotFinite(NotFinite::unapplied(
                rows.total_steps(),
                "the loss".to_owned(),
            )),
        }
    }

    /// The requests of signals to any process of the run. `saves_seen` of this process's requests
    /// for a checkpoint are done.
    ///
    /// # Errors
    /// [`Error::Peer`] where a rank is lost.
    pub fn asked(&self, stop: &StopFlag, saves_seen: usize) -> Result<Asked, Error> {
        let saves_seen_now = stop.saves_requested();
        let own = Asked {
            stop: stop.requested(),
            save: saves_seen_now > saves_seen,
            saves_seen: saves_seen_now,
        };
        if self.world().processes == 1 {
            return Ok(own);
        }
        let sent = [own.stop.unwrap_or(0), i32::from(own.save)].map(i32::to_le_bytes);
        let received = self.exchange("what signals ask for", sent.as_flattened())?;
        let sent = |at: usize| {
            let numbers = received.iter().filter_map(move |sent| sent.get(at..at + 4));
            let numbers = numbers.filter_map(|number| number.try_into().ok());
            numbers.map(i32::from_le_bytes).find(|&number| number != 0)
        };
        Ok(Asked {
            stop: sent(0),
            save: sent(4).is_some(),
            ..own
        })
    }

    /// Sends `sent` from every rank of this process; returns what each rank of the run sent, by
    /// rank.
    ///
    /// # Errors
    /// [`Error::Peer`] where a rank is lost.
    pub fn exchange(&self, label: &str, sent: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mut received = self.each(|executor| executor.peers().exchange(label, sent))?;
        Ok(received.swap_remove(0))
    }
}

/// The failure of a rank whose thread panicked.
fn panicked(executor: &Executor, panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = format!("it panicked: {}", text.unwrap_or("without words"));
    let peers = executor.peers();
    let lost = peers.failed(&text);
    lost.unwrap_or_else(|| Error::Peer(Lost::reported(peers.rank(), text)))
}

/// The failure of a rank. The others are informed, unless they fail with it too.
fn report_failure<E: RankFailure>(executor: &Executor, error: E) -> E {
    match error.reach() {
        Reach::AllRanks | Reach::FromPeer => error,
        Reach::Call => match executor.peers().blame(&chain(&error)) {
            Some(lost) => E::from(lost),
            None => error,
        },
        reach => match (executor.peers().failed(&chain(&error)), reach) {
            // A rank that panicked is lost, wherever that was.
            (Some(lost), Reach::Panic) => E::from(lost),
            _ => error,
        },
    }
}
