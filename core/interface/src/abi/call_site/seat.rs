//! A thread -> what it is in, as other threads see it: the call, what that is about, and signs of progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Call;

/// All seats, and those whose threads are gone: a new thread takes one of these first.
static ALL: Mutex<Vec<&'static Seat>> = Mutex::new(Vec::new());
static FREE: Mutex<Vec<&'static Seat>> = Mutex::new(Vec::new());

/// What a thread is in. It is never freed.
#[derive(Debug)]
pub(super) struct Seat {
    beats: AtomicU64,
    work: Mutex<Work>,
}

#[derive(Debug)]
struct Work {
    /// Calls entered so far.
    entered: u64,
    /// None where the thread is in no call of its own.
    inside: Option<Inside>,
    /// What calls from now on are about.
    subject: Option<Arc<str>>,
}

#[derive(Debug)]
struct Inside {
    call: Call,
    number: u64,
    subject: Option<Arc<str>>,
}

/// What a thread was in before it entered a call.
#[derive(Debug)]
pub(super) struct Seated(Option<Inside>);

/// A call that has not returned.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The call: of those that a thread is in, the innermost.
    pub call: Call,
    /// What it is about, such as a weight's name.
    pub subject: Option<Arc<str>>,
    /// The thread's number among all that ever made calls.
    pub thread: usize,
    /// The call's number among those of its thread.
    pub number: u64,
    /// Grows with every sign of progress.
    pub beats: u64,
}

thread_local! {
    static MINE: Lease = Lease(Seat::hired());
}

/// Gives the seat back when the thread ends.
struct Lease(&'static Seat);

impl Drop for Lease {
    fn drop(&mut self) {
        locked(&FREE).push(self.0);
    }
}

impl Seat {
    /// This thread's.
    pub fn mine() -> &'static Seat {
        // A thread at its very end has none any more, and takes one for good.
        MINE.try_with(|lease| lease.0)
            .unwrap_or_else(|_| Seat::hired())
    }

    fn hired() -> &'static Seat {
        if let Some(seat) = locked(&FREE).pop() {
            return seat;
        }
        let seat: &'static Seat = Box::leak(Box::new(Seat {
            beats: AtomicU64::new(0),
            work: Mutex::new(Work {
                entered: 0,
                inside: None,
                subject: None,
            }),
        }));
        locked(&ALL).push(seat);
        seat
    }

    /// A sign of progress.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// The thread enters `call`, or works for that of another thread.
    pub fn enter(&self, call: Option<Call>) -> Seated {
        let mut work = locked(&self.work);
        let inside = call.map(|call| {
            work.entered += 1;
            Inside {
                call,
                number: work.entered,
                subject: work.subject.clone(),
            }
        });
        Seated(std::mem::replace(&mut work.inside, inside))
    }

    /// The thread is in what it was in before.
    pub fn leave(&self, before: Seated) {
        locked(&self.work).inside = before.0;
    }

    fn pending(&self, thread: usize) -> Option<Pending> {
        // Read first: a sign that comes in between is seen the next time.
        let beats = self.beats.load(Ordering::Relaxed);
        let work = locked(&self.work);
        let inside = work.inside.as_ref()?;
        Some(Pending {
            call: inside.call,
            subject: inside.subject.clone(),
            thread,
            number: inside.number,
            beats,
        })
    }
}

/// Calls of this thread are about what was named until this is dropped.
#[must_use]
#[derive(Debug)]
pub struct About {
    before: Option<Arc<str>>,
}

impl Drop for About {
    fn drop(&mut self) {
        locked(&Seat::mine().work).subject = self.before.take();
    }
}

/// The calls that this thread makes are about `subject`, such as a weight, until what is returned is dropped.
pub fn about(subject: &Arc<str>) -> About {
    let before = locked(&Seat::mine().work)
        .subject
        .replace(Arc::clone(subject));
    About { before }
}

/// The calls that threads are in, for each the innermost.
pub fn pending() -> Vec<Pending> {
    let all = locked(&ALL).clone();
    let seats = all.iter().enumerate();
    seats
        .filter_map(|(thread, seat)| seat.pending(thread))
        .collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
