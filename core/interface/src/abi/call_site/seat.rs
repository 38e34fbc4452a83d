//! A record per thread, for other threads to read: its plugin call, the subject of the call, and
//! signs of progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Call;

/// All seats, and those whose threads have ended. A new thread first reuses one of these.
static ALL: Mutex<Vec<&'static Seat>> = Mutex::new(Vec::new());
static FREE: Mutex<Vec<&'static Seat>> = Mutex::new(Vec::new());

/// The record of a thread. It is never freed.
#[derive(Debug)]
pub(super) struct Seat {
    beats: AtomicU64,
    work: Mutex<Work>,
}

#[derive(Debug)]
struct Work {
    /// Number of calls entered so far.
    entered: u64,
    /// None where the thread is in no call of its own.
    inside: Option<Inside>,
    /// The subject of the calls from now on, such as a weight's name.
    subject: Option<Arc<str>>,
}

#[derive(Debug)]
struct Inside {
    call: Call,
    number: u64,
    subject: Option<Arc<str>>,
}

/// The state of a thread before it entered a call.
#[derive(Debug)]
pub(super) struct Seated(Option<Inside>);

/// A call that has not returned.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The innermost call of the thread.
    pub call: Call,
    /// Its subject, such as a weight's name.
    pub subject: Option<Arc<str>>,
    /// Number of the thread, among all threads that ever made calls.
    pub thread: usize,
    /// Number of the call, among those of its thread.
    pub number: u64,
    /// Counter of signs of progress.
    pub beats: u64,
}

thread_local! {
    static MINE: Lease = Lease(Seat::hired());
}

/// Returns the seat when the thread ends.
struct Lease(&'static Seat);

impl Drop for Lease {
    fn drop(&mut self) {
        locked(&FREE).push(self.0);
    }
}

impl Seat {
    /// The seat of this thread.
    pub fn mine() -> &'static Seat {
        // A thread that is being destroyed has no seat any more; it gets one that is never
        // returned.
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

    /// Records a sign of progress.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Enters `call`, or with none, work for another thread's call.
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

    /// Restores the state from before the call.
    pub fn leave(&self, before: Seated) {
        locked(&self.work).inside = before.0;
    }

    fn pending(&self, thread: usize) -> Option<Pending> {
        // Read before the call: a sign of progress in between is seen the next time.
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

/// The subject of this thread's calls, until it is dropped.
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

/// Sets the subject of this thread's calls, such as a weight's name, until the returned value is
/// dropped.
pub fn about(subject: &Arc<str>) -> About {
    let before = locked(&Seat::mine().work)
        .subject
        .replace(Arc::clone(subject));
    About { before }
}

/// The innermost call of each thread that is in one.
pub fn pending() -> Vec<Pending> {
    let all = locked(&ALL).clone();
    let seats = all.iter().enumerate();
    seats
        .filter_map(|(thread, seat)| seat.pending(thread))
        .collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
