//! A record per thread, for other threads to read: its plugin call, the subject of the call, and
//! signs of progress. Its thread enters and leaves calls without a lock, since it does so for each
//! launch of a kernel.

mod inside;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::inside::{Inside, InsideCell};
use super::Call;

/// All records, and those whose threads have ended. A new thread first reuses one of these.
static ALL: Mutex<Vec<&'static ThreadRecord>> = Mutex::new(Vec::new());
static FREE: Mutex<Vec<&'static ThreadRecord>> = Mutex::new(Vec::new());

/// The record of a thread. It is never freed. Only its thread writes it, but for `beats_of_others`.
#[derive(Debug, Default)]
pub(super) struct ThreadRecord {
    /// The call that the thread is in.
    inside: InsideCell,
    /// Signs of progress of the thread itself.
    beats: AtomicU64,
    /// Signs of progress of threads that work for its call.
    beats_of_others: AtomicU64,
    /// Number of calls entered so far.
    entered: AtomicU64,
    /// The number of the thread's polls, which are one call; 0 where it does not poll.
    polls: AtomicU64,
    /// The subjects of the thread's calls, such as a weight's name; the last one is the subject of
    /// the calls from now on.
    subjects: Mutex<Vec<Arc<str>>>,
    /// Length of `subjects`.
    subject_count: AtomicUsize,
}

/// The state of a thread before it entered a call.
#[derive(Debug)]
pub(super) struct SavedState(Option<Inside>);

/// The state of a thread before it polled.
#[derive(Debug)]
pub(super) struct BeforePolls {
    inside: Option<Inside>,
    polls: u64,
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
    #[inline]
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
        let record: &'static ThreadRecord = Box::leak(Box::default());
        locked(&ALL).push(record);
        record
    }

    /// Records a sign of progress of the thread itself.
    #[inline]
    pub fn beat(&self) {
        self.beats.store(add_one(&self.beats), Ordering::Relaxed);
    }

    /// Records a sign of progress, from the thread of `from`.
    #[inline]
    pub fn beat_from(&self, from: &ThreadRecord) {
        if std::ptr::eq(self, from) {
            self.beat();
        } else {
            self.beats_of_others.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Enters `call`, or with none, work for another thread's call.
    #[inline]
    pub fn enter(&'static self, call: Option<Call>) -> SavedState {
        let before = self.inside.own(self);
        self.inside.set(call.map(|call| Inside {
            call,
            number: self.next_number(),
            subjects: self.subject_count.load(Ordering::Relaxed),
        }));
        SavedState(before)
    }

    /// Restores the state from before the call.
    #[inline]
    pub fn leave(&self, saved: SavedState) {
        self.inside.set(saved.0);
    }

    /// The next calls are polls.
    pub fn begin_polls(&'static self) -> BeforePolls {
        let before = BeforePolls {
            inside: self.inside.own(self),
            polls: self.polls.load(Ordering::Relaxed),
        };
        self.polls.store(self.next_number(), Ordering::Relaxed);
        self.inside.set(None);
        before
    }

    /// Enters `call`, a poll. The thread stays inside after the call, until the next poll.
    pub fn enter_poll(&self, call: Call) {
        self.inside.set(Some(Inside {
            call,
            number: self.polls.load(Ordering::Relaxed),
            subjects: self.subject_count.load(Ordering::Relaxed),
        }));
    }

    /// Restores the state from before the polls.
    pub fn end_polls(&self, before: BeforePolls) {
        self.polls.store(before.polls, Ordering::Relaxed);
        self.inside.set(before.inside);
    }

    #[inline]
    fn next_number(&self) -> u64 {
        let number = add_one(&self.entered);
        self.entered.store(number, Ordering::Relaxed);
        number
    }

    fn pending(&'static self, thread: usize) -> Option<Pending> {
        // Read before the call: a sign of progress in between is seen the next time.
        let beats = self.beats.load(Ordering::Relaxed);
        let beats = beats.wrapping_add(self.beats_of_others.load(Ordering::Relaxed));
        let inside = self.inside.read(self)?;
        let last = inside.subjects.checked_sub(1);
        let subject = last.and_then(|last| locked(&self.subjects).get(last).cloned());
        // A call that has ended meanwhile may have left its subject's place to another.
        let is_still_inside = self.inside.read(self)?.number == inside.number;
        is_still_inside.then_some(Pending {
            call: inside.call,
            subject,
            thread,
            number: inside.number,
            beats,
        })
    }
}

/// The counter's next value. Only one thread writes the counter.
#[inline]
fn add_one(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed).wrapping_add(1)
}

/// The subject of this thread's calls, until it is dropped.
#[must_use]
#[derive(Debug)]
pub struct About {
    record: &'static ThreadRecord,
    count_before: usize,
}

impl Drop for About {
    fn drop(&mut self) {
        let mut subjects = locked(&self.record.subjects);
        subjects.truncate(self.count_before);
        let count = &self.record.subject_count;
        count.store(subjects.len(), Ordering::Relaxed);
    }
}

/// Sets the subject of this thread's calls, such as a weight's name, until the returned value is
/// dropped.
pub fn about(subject: &Arc<str>) -> About {
    let record = ThreadRecord::mine();
    let mut subjects = locked(&record.subjects);
    let count_before = subjects.len();
    subjects.push(Arc::clone(subject));
    record
        .subject_count
        .store(subjects.len(), Ordering::Relaxed);
    About {
        record,
        count_before,
    }
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
