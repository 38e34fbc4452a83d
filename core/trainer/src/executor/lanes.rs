//! The two lanes of a rank: legs in order, each after those of the other lane that it waits for.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, PoisonError};

use super::course::{Lane, Leg};
use crate::Error;

/// How far each lane is.
#[derive(Default)]
struct Progress {
    /// For each lane the legs, done or not its own, before which nothing of it is left.
    done: [usize; 2],
    /// Whether a lane has given up.
    broken: bool,
}

/// The state of a walk.
#[derive(Default)]
struct Walk {
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// Does every leg that `wanted` names: those that compute on this thread, those that move bytes on another one beside it.
///
/// # Errors
/// The first failure of a leg; where both lanes fail, that of the one that moves bytes.
pub(super) fn walk(
    legs: &[Leg],
    wanted: &dyn Fn(usize, &Leg) -> bool,
    compute: &mut dyn FnMut(&Leg) -> Result<(), Error>,
    transfer: &(dyn Fn(&Leg) -> Result<(), Error> + Sync),
) -> Result<(), Error> {
    let mine = |lane| move |(index, leg): &(usize, &Leg)| leg.lane == lane && wanted(*index, leg);
    let moves: Vec<(usize, &Leg)> = legs.iter().enumerate().filter(mine(Lane::Move)).collect();
    let computes: Vec<(usize, &Leg)> = legs
        .iter()
        .enumerate()
        .filter(mine(Lane::Compute))
        .collect();
    if moves.is_empty() {
        return computes.into_iter().try_for_each(|(_, leg)| compute(leg));
    }
    let walk = Walk::default();
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| walk.along(Lane::Move, &moves, &mut |leg| transfer(leg)));
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
    /// Does the legs of a lane; gives up where the other lane has.
    fn along(
        &self,
        lane: Lane,
        legs: &[(usize, &Leg)],
        act: &mut dyn FnMut(&Leg) -> Result<(), Error>,
    ) -> Result<Option<Stopped>, Error> {
        let _broken_by_panic = BreakOnPanic(self);
        for &(index, leg) in legs {
            self.reach(lane, index);
            if let Some(awaited) = leg.waits
                && self.wait(lane, awaited).is_err()
            {
                return Ok(Some(Stopped));
            }
            if let Err(error) = act(leg) {
                self.break_off();
                return Err(error);
            }
            self.reach(lane, index + 1);
        }
        self.reach(lane, usize::MAX);
        Ok(None)
    }

    /// All legs of the lane before `index` are done.
    fn reach(&self, lane: Lane, index: usize) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.done[lane as usize] = index;
        drop(progress);
        self.changed.notify_all();
    }

    /// Waits until the other lane is beyond leg `index`.
    fn wait(&self, lane: Lane, index: usize) -> Result<(), Stopped> {
        let other = 1 - lane as usize;
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = self
            .changed
            .wait_while(progress, |progress| {
                !progress.broken && progress.done[other] <= index
            })
            .unwrap_or_else(PoisonError::into_inner);
        match progress.broken {
            true => Err(Stopped),
            false => Ok(()),
        }
    }

    fn break_off(&self) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.broken = true;
        drop(progress);
        self.changed.notify_all();
    }
}

/// Lets the other lane give up where this one panics.
struct BreakOnPanic<'a>(&'a Walk);

impl Drop for BreakOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.break_off();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use espalier_interface::schedule::{Act, Action};

    use super::*;

    fn leg(unit: usize, stream: u32, waits: Option<usize>) -> Leg {
        Leg {
            action: Action::new(Act::Fetch, unit).on(stream),
            lane: match stream {
                0 => Lane::Compute,
                _ => Lane::Move,
            },
            waits,
            regions: Vec::new(),
            begins: Vec::new(),
        }
    }

    #[test]
    fn legs_wait_for_those_of_the_other_lane() {
        // 0 moves, 1 computes after it, 2 moves after 1, 3 computes after 2.
        let legs = [
            leg(0, 1, None),
            leg(1, 0, Some(0)),
            leg(2, 1, Some(1)),
            leg(3, 0, Some(2)),
        ];
        for _ in 0..200 {
            let order = Mutex::new(Vec::new());
            let note = |leg: &Leg| {
                order.lock().expect("no panic").push(leg.action.unit);
                Ok(())
            };
            walk(&legs, &|_, _| true, &mut |leg| note(leg), &note).expect("nothing fails");
            assert_eq!(order.into_inner().expect("no panic"), [0, 1, 2, 3]);
        }
    }

    #[test]
    fn a_leg_that_is_left_out_holds_up_nothing() {
        let legs = [leg(0, 1, None), leg(1, 0, Some(0)), leg(2, 1, Some(1))];
        let done = Mutex::new(Vec::new());
        let note = |leg: &Leg| {
            done.lock().expect("no panic").push(leg.action.unit);
            Ok(())
        };
        let wanted = |index: usize, _: &Leg| index != 0;
        walk(&legs, &wanted, &mut |leg| note(leg), &note).expect("nothing fails");
        assert_eq!(done.into_inner().expect("no panic"), [1, 2]);
    }

    #[test]
    fn a_failure_ends_both_lanes() {
        let legs = [leg(0, 1, None), leg(1, 0, Some(0)), leg(2, 0, None)];
        let fail = |_: &Leg| {
            Err(Error::Usage {
                message: "no bytes".to_owned(),
                next_step: String::new(),
            })
        };
        let mut computed = 0;
        let mut compute = |_: &Leg| {
            computed += 1;
            Ok(())
        };
        let error = walk(&legs, &|_, _| true, &mut compute, &fail).expect_err("the move fails");
        assert_eq!(error.to_string(), "no bytes");
        assert_eq!(computed, 0);
    }
}
