//! State that the members of a group share: the call of each, and the phases that they start
//! together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use espalier_interface::CollectiveCall;

/// How often a member polls before it sleeps: members on time arrive within microseconds.
const LOOKS: usize = 200;

/// A member's published call.
#[derive(Clone, Copy, Debug)]
pub struct Shown(pub CollectiveCall);

// SAFETY: the addresses are used only while the member that published them waits for all others.
#[allow(unsafe_code)]
unsafe impl Send for Shown {}

/// A room with a place for each member.
pub struct Room {
    state: Mutex<State>,
    changed: Condvar,
    /// Phases that have started; also in the state, copied here to be read without the lock.
    phase: AtomicU64,
    members: usize,
}

#[derive(Default)]
struct State {
    /// Members that wait for the next phase.
    arrived: usize,
    /// Members that use the memory of others.
    working: usize,
    aborted: bool,
    shown: Vec<Option<Shown>>,
}

/// The group was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

/// What members do in the next phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// They read and write published memory, until they wait again.
    Work,
    /// They return.
    Leave,
}

impl Room {
    /// A room for `members` members.
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

    /// Publishes a member's call and waits until all have published theirs; returns them by member.
    ///
    /// # Errors
    /// [`Aborted`], where the group is aborted.
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
    /// [`Aborted`], where the group is aborted. No member uses the memory of others then, or starts
    /// to.
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
            // All members, also those that still sleep: each finishes its own next phase.
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

    /// Waits until no member uses this one's published memory, which may be freed once it returns.
    fn leave_aborted(&self, mut state: MutexGuard<'_, State>) -> Result<(), Aborted> {
        while state.working > 0 {
            state = self.sleep(state);
        }
        Err(Aborted)
    }

    /// Aborts the group.
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
