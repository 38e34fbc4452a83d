//! What the members of a group share: what each calls, and the phases that they begin together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use espalier_interface::CollectiveCall;

/// How often a member looks again before it sleeps: members that are not late come within
/// microseconds.
const LOOKS: usize = 200;

/// What a member shows of its call.
#[derive(Clone, Copy, Debug)]
pub struct Shown(pub CollectiveCall);

// SAFETY: the addresses are followed only while the member that shows them waits for all others.
#[allow(unsafe_code)]
unsafe impl Send for Shown {}

/// A room with a place for each member.
pub struct Room {
    state: Mutex<State>,
    changed: Condvar,
    /// Phases that have begun; also in the state, here to be looked at without the lock.
    phase: AtomicU64,
    members: usize,
}

#[derive(Default)]
struct State {
    /// Members that wait for the next phase.
    arrived: usize,
    /// Members that are in the memory of others.
    working: usize,
    aborted: bool,
    shown: Vec<Option<Shown>>,
}

/// The group was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

/// What members do in the phase that they are about to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// They read and write what was shown, until they wait again.
    Work,
    /// They return.
    Leave,
}

impl Room {
    /// A room for so many members.
    pub fn new(members: usize) -> Self {
        Room {
            state: Mutex::new(State {
                shown: vec![None; members],
                ..State::default()
            }),
            changed: Condvar::new(),
            phase: AtomicU64::new(0),
            members,
        }
    }

    /// Shows a member's call and waits until all have shown theirs; returns them by member.
    ///
    /// # Errors
    /// Where the group is given up.
    pub fn show(&self, member: usize, call: Shown) -> Result<Vec<CollectiveCall>, Aborted> {
        let mut state = self.lock();
        if !state.aborted {
            state.shown[member] = Some(call);
        }
        self.meet(state, Next::Work)?;
        let shown = self.lock().shown.clone();
        Ok(shown
            .into_iter()
            .map(|call| call.expect("all have shown").0)
            .collect())
    }

    /// Waits until all members are done with a phase of work.
    ///
    /// # Errors
    /// Where the group is given up. No member is at work then, or begins to be.
    pub fn finish(&self, next: Next) -> Result<(), Aborted> {
        let mut state = self.lock();
        state.working -= 1;
        if state.working == 0 && state.aborted {
            self.changed.notify_all();
        }
        self.meet(state, next)
    }

    fn meet(&self, mut state: MutexGuard<'_, State>, next: Next) -> Result<(), Aborted> {
        if state.aborted {
            return self.leave_aborted(state);
        }
        let phase = self.phase.load(Ordering::Relaxed);
        state.arrived += 1;
        if state.arrived == self.members {
            state.arrived = 0;
            // All of them, also those that have not woken: what they do next is theirs to finish.
            state.working = match next {
                Next::Work => self.members,
                Next::Leave => 0,
            };
            self.phase.store(phase + 1, Ordering::Release);
            self.changed.notify_all();
            return Ok(());
        }
        drop(state);
        for look in 0..LOOKS {
            if self.phase.load(Ordering::Acquire) != phase {
                return Ok(());
            }
            match look % 20 {
                19 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
        let mut state = self.lock();
        while self.phase.load(Ordering::Relaxed) == phase {
            if state.aborted {
                return self.leave_aborted(state);
            }
            state = self.sleep(state);
        }
        Ok(())
    }

    /// Waits until no member reads or writes what this one has shown: its memory may be gone once
    /// it returns.
    fn leave_aborted(&self, mut state: MutexGuard<'_, State>) -> Result<(), Aborted> {
        while state.working > 0 {
            state = self.sleep(state);
        }
        Err(Aborted)
    }

    /// Gives the group up.
    pub fn abort(&self) {
        self.lock().aborted = true;
        self.changed.notify_all();
    }

    fn sleep<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let woken = self.changed.wait(state);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
