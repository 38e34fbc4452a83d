//! The lanes of a rank: tasks in order, each after those of other lanes that it waits for, on the
//! host and on the device.
//!
//! A lane is a thread of the host and a stream of the device. A task that has returned may still
//! run on the device. So a lane that waits for a task of another lane waits twice. Its thread waits
//! until the task is enqueued, its stream for an event after it.
//!
//! No event is recorded that another one implies ([`waits`]). Work that is known to be done at the
//! end of a walk is known to the next one. So a walk does not end with a wait of the compute stream
//! for the other lanes: the next walk's own waits may order the same tasks. Who gives the compute
//! stream work between walks calls [`Lanes::catch_up`], unless no other lane uses the same bytes.

mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use espalier_interface::{Device, Event, Stream};
use espalier_plan::step_plan::{Lane, Task};

use super::since_wait::SinceWait;
use crate::error::Result;

pub(super) use waits::TaskWaits;
use waits::Waits;

/// What streams have not waited for between walks, as far as they may use the same bytes.
#[derive(Debug)]
pub(super) struct Behind(Mutex<NotWaited>);

#[derive(Clone, Debug)]
struct NotWaited {
    /// The moving lanes that have not waited for all that the other streams were given.
    moving: BTreeSet<Lane>,
    /// The moving lanes whose last tasks the compute stream has to wait for, to have waited for all
    /// work of the other streams.
    compute: BTreeSet<Lane>,
}

impl Behind {
    /// All of `lanes` lanes but the compute lane.
    pub(super) fn all(lanes: usize) -> Self {
        Behind(Mutex::new(NotWaited {
            moving: (1..lanes).map(Lane).collect(),
            compute: BTreeSet::new(),
        }))
    }

    /// The host has waited for all that the compute stream was given.
    pub(super) fn host_waited(&self) {
        let NotWaited { moving, compute } = &mut *self.lock();
        // A lane is done with its own tasks before its next one.
        moving.retain(|lane| compute.iter().any(|other| other != lane));
    }

    /// Whether the compute stream has waited for all that the other streams were given: never
    /// while lanes walk.
    pub(super) fn compute_has_caught_up(&self) -> bool {
        self.lock().compute.is_empty()
    }

    /// The compute stream was given work on bytes that any of `lanes` lanes may use.
    pub(super) fn fall(&self, lanes: usize) {
        self.lock().moving.extend((1..lanes).map(Lane));
    }

    /// The streams of `lanes` lanes get a walk in which the lanes of `moving` take part. Until it
    /// has ended well, none has waited for another. Returns the lanes that were not waited for
    /// before.
    fn begin_walk(&self, lanes: usize, moving: &[Lane]) -> NotWaited {
        let mut held = self.lock();
        let before = held.clone();
        held.moving.extend((1..lanes).map(Lane));
        held.compute.extend(moving);
        before
    }

    // A panic while the lock is held leaves the sets whole.
    fn lock(&self) -> MutexGuard<'_, NotWaited> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The streams of a rank's lanes on its device.
pub(super) struct Lanes<'a> {
    pub(super) device: &'a dyn Device,
    /// For each lane its stream.
    pub(super) streams: &'a [Stream],
    /// The lanes that have to wait for the compute stream before their next task.
    pub(super) behind: &'a Behind,
    /// What errors may be of.
    pub(super) since_wait: &'a SinceWait,
}

impl Lanes<'_> {
    /// An event after all earlier work of lane `from`.
    fn record(&self, from: Lane) -> Result<Event> {
        self.since_wait
            .during("record", self.device.record(self.streams[from.0]))
    }

    /// Makes later work of lane `to` wait for `event`.
    fn wait(&self, to: Lane, event: Event) -> Result<()> {
        self.since_wait
            .during("wait", self.device.wait(self.streams[to.0], event))
    }

    fn free(&self, event: Event) -> Result<()> {
        self.since_wait
            .during("free_event", self.device.free_event(event))
    }

    /// Makes a walk begin after all earlier work of the streams, where `waits` do not imply it. The
    /// compute lane waits for the lanes that it has not waited for. Then the lanes of
    /// [`Waits::begins`] that are behind wait for the compute lane. Returns the lanes that stay
    /// behind: they are not in `moving`.
    fn begin(&self, waits: &Waits, moving: &[Lane]) -> Result<BTreeSet<Lane>> {
        let NotWaited {
            moving: behind,
            compute: unwaited,
        } = self.behind.begin_walk(self.streams.len(), moving);
        let begin: Vec<Lane> = behind.intersection(&waits.begins).copied().collect();
        // The first task of the compute lane may be too late for a lane that begins after what the
        // compute lane was given before.
        let implied = |lane: &Lane| {
            waits.first_waits.contains(lane) && begin.iter().all(|other| other == lane)
        };
        let mut explicit = unwaited.into_iter().filter(|lane| !implied(lane));
        explicit.try_for_each(|lane| self.catch_up_with(lane))?;
        if !begin.is_empty() {
            let event = self.record(Lane::COMPUTE)?;
            begin.iter().try_for_each(|&lane| self.wait(lane, event))?;
            self.free(event)?;
        }
        let stay = behind.into_iter().filter(|lane| !moving.contains(lane));
        Ok(stay.collect())
    }

    /// Makes later work of the compute lane wait for all work of the other lanes in walks.
    pub(super) fn catch_up(&self) -> Result<()> {
        let unwaited = std::mem::take(&mut self.behind.lock().compute);
        unwaited
            .into_iter()
            .try_for_each(|lane| self.catch_up_with(lane))
    }

    fn catch_up_with(&self, lane: Lane) -> Result<()> {
        let event = self.record(lane)?;
        self.wait(Lane::COMPUTE, event)?;
        self.free(event)
    }
}

/// How far the lanes are.
#[derive(Default)]
struct Progress {
    /// The events after the tasks that others wait for, of those that are enqueued.
    events: BTreeMap<usize, Event>,
    /// Whether a lane has stopped early.
    broken: bool,
}

/// The state of a walk.
struct Walk<'a> {
    lanes: &'a Lanes<'a>,
    /// Who waits for whom.
    waits: &'a Waits,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// Does every task that `wanted` accepts, each of which gives its stream work. Computing tasks run
/// on this thread, those of each other lane on a thread beside it. Work of the lanes of
/// [`Lanes::behind`] begins after the compute stream's earlier work. The compute stream's later
/// work begins after all of the walk once it has caught up ([`Lanes::catch_up`]); the next walk
/// does so itself.
///
/// # Errors
/// The first failure of a task. Where several lanes fail, that of a transfer.
pub(super) fn walk(
    lanes: &Lanes<'_>,
    (tasks, waits): (&[Task], &TaskWaits),
    wanted: &dyn Fn(usize, &Task) -> bool,
    compute: &mut dyn FnMut(&Task) -> Result<()>,
    transfer: &(dyn Fn(&Task) -> Result<()> + Sync),
) -> Result<()> {
    let mut of_lanes: BTreeMap<Lane, Vec<(usize, &Task)>> = BTreeMap::new();
    let takes_part: Vec<bool> = (0..).zip(tasks).map(|(at, one)| wanted(at, one)).collect();
    for (index, task) in tasks.iter().enumerate() {
        if takes_part[index] {
            of_lanes.entry(task.lane).or_default().push((index, task));
        }
    }
    let computes = of_lanes.remove(&Lane::COMPUTE).unwrap_or_default();
    if of_lanes.is_empty() {
        lanes.catch_up()?;
        lanes.behind.fall(lanes.streams.len());
        return computes.into_iter().try_for_each(|(_, task)| compute(task));
    }
    let moving: Vec<Lane> = of_lanes.keys().copied().collect();
    let waits = waits.of(tasks, takes_part, lanes.streams.len());
    let mut behind = lanes.begin(&waits, &moving)?;
    behind.extend(&waits.behind);
    let walk = Walk::new(lanes, &waits);
    let done = std::thread::scope(|scope| {
        let walk = &walk;
        let threads = of_lanes.iter().map(|(&lane, tasks)| {
            scope.spawn(move || walk.along(lane, tasks, &mut |task| transfer(task)))
        });
        let moved: Vec<_> = threads.collect();
        let computed = catch_unwind(AssertUnwindSafe(|| {
            walk.along(Lane::COMPUTE, &computes, compute)
        }));
        if computed.is_err() {
            walk.break_off();
        }
        let joined: Vec<_> = moved.into_iter().map(|thread| thread.join()).collect();
        let lanes = joined.into_iter().chain([computed]);
        let each = lanes.map(|lane| lane.unwrap_or_else(|panic| resume_unwind(panic)));
        each.collect::<Vec<_>>().into_iter().collect::<Result<()>>()
    });
    let freed = walk.free_events();
    done.and(freed)?;
    *lanes.behind.lock() = NotWaited {
        moving: behind,
        compute: waits.ends.clone(),
    };
    Ok(())
}

impl<'a> Walk<'a> {
    fn new(lanes: &'a Lanes<'a>, waits: &'a Waits) -> Self {
        Walk {
            lanes,
            waits,
            progress: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Does the tasks of a lane; stops where another lane has stopped.
    fn along(
        &self,
        lane: Lane,
        tasks: &[(usize, &Task)],
        act: &mut dyn FnMut(&Task) -> Result<()>,
    ) -> Result<()> {
        let _broken_by_panic = BreakOnPanic(self);
        let done = self.try_along(lane, tasks, act);
        if done.is_err() {
            self.break_off();
        }
        done
    }

    fn try_along(
        &self,
        lane: Lane,
        tasks: &[(usize, &Task)],
        act: &mut dyn FnMut(&Task) -> Result<()>,
    ) -> Result<()> {
        for &(index, task) in tasks {
            for &other in &self.waits.of_tasks[index] {
                let Some(event) = self.event(other) else {
                    return Ok(());
                };
                self.lanes.wait(lane, event)?;
            }
            act(task)?;
            if self.waits.awaited.contains(&index) {
                let event = self.lanes.record(lane)?;
                self.progress().events.insert(index, event);
                self.changed.notify_all();
            }
        }
        Ok(())
    }

    /// The event after task `index`, once it is enqueued; none where a lane has stopped before.
    fn event(&self, index: usize) -> Option<Event> {
        let progress = self.changed.wait_while(self.progress(), |progress| {
            !progress.broken && !progress.events.contains_key(&index)
        });
        let progress = progress.unwrap_or_else(PoisonError::into_inner);
        let event = progress.events.get(&index).copied();
        event.filter(|_| !progress.broken)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn break_off(&self) {
        self.progress().broken = true;
        self.changed.notify_all();
    }

    fn free_events(&self) -> Result<()> {
        let events = std::mem::take(&mut self.progress().events);
        events
            .into_values()
            .try_for_each(|event| self.lanes.free(event))
    }
}

/// Stops the other lanes where this one panics.
struct BreakOnPanic<'a>(&'a Walk<'a>);

impl Drop for BreakOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.break_off();
        }
    }
}

#[cfg(test)]
mod tests;
