//! The two lanes of a rank: tasks in order, each after those of the other lane that it waits for.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, PoisonError};

use espalier_plan::step_plan::{Lane, Task};

use crate::Error;

/// The progress of each lane.
#[derive(Default)]
struct Progress {
    /// For each lane an index of a task: all tasks of the lane before it are done.
    done: [usize; 2],
    /// Whether a lane has stopped early.
    broken: bool,
}

/// The state of a walk.
#[derive(Default)]
struct Walk {
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// Does every task that `wanted` accepts: computing tasks on this thread, transfers on a second
/// thread.
///
/// # Errors
/// The first failure of a task. Where both lanes fail, that of the transfers.
pub(super) fn walk(
    tasks: &[Task],
    wanted: &dyn Fn(usize, &Task) -> bool,
    compute: &mut dyn FnMut(&Task) -> Result<(), Error>,
    transfer: &(dyn Fn(&Task) -> Result<(), Error> + Sync),
) -> Result<(), Error> {
    let mine =
        |lane| move |(index, task): &(usize, &Task)| task.lane == lane && wanted(*index, task);
    let moves: Vec<(usize, &Task)> = tasks.iter().enumerate().filter(mine(Lane::Move)).collect();
    let computes: Vec<(usize, &Task)> = tasks
        .iter()
        .enumerate()
        .filter(mine(Lane::Compute))
        .collect();
    if moves.is_empty() {
        return computes.into_iter().try_for_each(|(_, task)| compute(task));
    }
    let walk = Walk::default();
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| walk.along(Lane::Move, &moves, &mut |task| transfer(task)));
        let computed = catch_unwind(AssertUnwindSafe(|| {
            walk.along(Lane::Compute, &computes, compute)
        }));
        if computed.is_err() {
            walk.break_off();
        }
        let moved = moving.join().unwrap_or_else(|panic| resume_unwind(panic));
        let computed = computed.unwrap_or_else(|panic| resume_unwind(panic));
        match (moved, computed) {
            (Ok(_), Ok(_)) => Ok(()),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    })
}

/// A lane that stopped because the other one did.
struct Stopped;

impl Walk {
    /// Does the tasks of a lane; stops where the other lane has stopped.
    fn along(
        &self,
        lane: Lane,
        tasks: &[(usize, &Task)],
        act: &mut dyn FnMut(&Task) -> Result<(), Error>,
    ) -> Result<Option<Stopped>, Error> {
        let _broken_by_panic = BreakOnPanic(self);
        for &(index, task) in tasks {
            self.reach(lane, index);
            if let Some(awaited) = task.waits
                && self.wait(lane, awaited).is_err()
            {
                return Ok(Some(Stopped));
            }
            if let Err(error) = act(task) {
                self.break_off();
                return Err(error);
            }
            self.reach(lane, index + 1);
        }
        self.reach(lane, usize::MAX);
        Ok(None)
    }

    /// All tasks of the lane before `index` are done.
    fn reach(&self, lane: Lane, index: usize) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.done[lane as usize] = index;
        drop(progress);
        self.changed.notify_all();
    }

    /// Waits until the other lane is beyond task `index`.
    fn wait(&self, lane: Lane, index: usize) -> Result<(), Stopped> {
        let other = 1 - lane as usize;
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = self
            .changed
            .wait_while(progress, |progress| {
                !progress.broken && progress.done[other] <= index
            })
            .unwrap_or_else(PoisonError::into_inner);
        if progress.broken {
            Err(Stopped)
        } else {
            Ok(())
        }
    }

    fn break_off(&self) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.broken = true;
        drop(progress);
        self.changed.notify_all();
    }
}

/// Stops the other lane where this one panics.
struct BreakOnPanic<'a>(&'a Walk);

impl Drop for BreakOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.break_off();
        }
    }
}

#[cfg(test)]
mod tests;
