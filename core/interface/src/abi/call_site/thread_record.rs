//! A record per thread, for other threads to read: its plugin call, the subject of the call, and
//! signs of progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Call;

/// All records, and those whose threads have ended. A new thread first reuses one of these.
static ALL: Mutex<Vec<&'static ThreadRecord>> = Mutex::new(Vec::new());
static FREE: Mutex<Vec<&'static ThreadRecord>> = Mutex::new(Vec::new());

/// The record of a thread. It is never freed.
#[derive(Debug)]
pub(super) struct ThreadRecord {
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
    /// The number of the thread's polls, which are one call, while it polls.
    polls: Option<u64>,
}

#[derive(Debug)]
struct Inside {
    call: Call,
    number: u64,
    subject: Option<Arc<str>>,
}

/// The state of a thread before it entered a call.
#[derive(Debug)]
pub(super) struct SavedState(Option<Inside>);

/// The state of a thread before it polled.
#[derive(Debug)]
pub(super) struct BeforePolls {
    inside: Option<Inside>,
    polls: Option<u64>,
}

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
    static MINE: Borrowed = Borrowed(ThreadRecord::unowned());
}

/// Returns the record when the thread ends.
struct Borrowed(&'static ThreadRecord);

impl Drop for Borrowed {
    fn drop(&mut self) {
        locked(&FREE).push(self.0);
    }
}

impl ThreadRecord {
    /// The record of this thread.
    pub fn mine() -> &'static ThreadRecord {
        // A thread that is being destroyed has no record any more; it gets one that is never
        // returned.
        MINE.try_with(|borrowed| borrowed.0)
            .unwrap_or_else(|_| ThreadRecord::unowned())
    }

    fn unowned() -> &'static ThreadRecord {
        if let Some(record) = locked(&FREE).pop() {
            return record;
        }
        let record: &'static ThreadRecord = Box::leak(Box::new(ThreadRecord {
            beats: AtomicU64::new(0),
            work: Mutex::new(Work {
                entered: 0,
                inside: None,
                subject: None,
                polls: None,
            }),
        }));
        locked(&ALL).push(record);
        record
    }

    /// Records a sign of progress.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Enters `call`, or with none, work for another thread's call.
    pub fn enter(&self, call: Option<Call>) -> SavedState {
        let mut work = locked(&self.work);
        let inside = call.map(|call| {
            work.entered += 1;
            Inside {
                call,
                number: work.entered,
                subject: work.subject.clone(),
            }
        });
        SavedState(std::mem::replace(&mut work.inside, inside))
    }

    /// Restores the state from before the call.
    pub fn leave(&self, saved: SavedState) {
        locked(&self.work).inside = saved.0;
    }

    /// The next calls are polls.
    pub fn begin_polls(&self) -> BeforePolls {
        let mut work = locked(&self.work);
        work.entered += 1;
        let number = work.entered;
        BeforePolls {
            polls: work.polls.replace(number),
            inside: work.inside.take(),
        }
    }

    /// Enters `call`, a poll. The thread stays inside after the call, until the next poll.
    pub fn enter_poll(&self, call: Call) {
        let mut work = locked(&self.work);
        let number = work.polls.expect("the thread polls");
        let subject = work.subject.clone();
        work.inside = Some(Inside {
            call,
            number,
            subject,
        });
    }

    /// Restores the state from before the polls.
    pub fn end_polls(&self, before: BeforePolls) {
        let mut work = locked(&self.work);
        work.inside = before.inside;
        work.polls = before.polls;
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
        locked(&ThreadRecord::mine().work).subject = self.before.take();
    }
}

/// Sets the subject of this thread's calls, such as a weight's name, until the returned value is
/// dropped.
pub fn about(subject: &Arc<str>) -> About {
    let before = locked(&ThreadRecord::mine().work)
        .subject
        .replace(Arc::clone(subject));
    About { before }
}

/// The innermost call of each thread that is in one.
pub fn pending() -> Vec<Pending> {
    let all = locked(&ALL).clone();
    let records = all.iter().enumerate();
    records
        .filter_map(|(thread, record)| record.pending(thread))
        .collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
