//! Marks which component's method each thread of the host is in. The mark names the culprit when a
//! call takes the process down, or does not return.

mod thread_record;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::Duration;

pub use thread_record::{About, Pending, about, pending};
use thread_record::{BeforePolls, SavedState, ThreadRecord};

/// Name of the call that opens a library, for [`CallSite::enter`].
pub const OPENING: &str = "opening";

/// Name of the call that makes a component.
pub(super) const CREATE: &str = "create";

/// How long a call may run without a sign of progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// Without limit.
    #[default]
    None,
    /// For this long.
    After(Duration),
    /// Without limit, because it waits for other ranks: silence says nothing about the plugin.
    OfOthers,
}

/// The limits of a component's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// For opening its library, and for making it.
    pub create: Limit,
    /// For every other call.
    pub call: Limit,
}

/// A component that was made. It is never freed, since a fault handler may still read it.
#[derive(Debug)]
pub struct CallSite {
    component: String,
    file: Option<PathBuf>,
    limits: Limits,
}

/// A call of a component's method.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    site: &'static CallSite,
    callback: &'static str,
    /// The record of the thread that made the call.
    record: &'static ThreadRecord,
    /// Depth of nested calls, this one included.
    depth: u32,
}

thread_local! {
    // Constant and without a destructor, so that a signal handler may read it.
    static CURRENT: Cell<Option<Call>> = const { Cell::new(None) };
    // The depth of the calls that are polls; 0 where none are.
    static POLLS: Cell<u32> = const { Cell::new(0) };
}

impl CallSite {
    /// The component called `component`, from the library `file`, or linked where that is none.
    pub fn new(component: &str, file: Option<&Path>) -> &'static CallSite {
        CallSite::limited(component, file, Limits::default())
    }

    /// As [`CallSite::new`], with time limits for a watcher.
    pub fn limited(component: &str, file: Option<&Path>, limits: Limits) -> &'static CallSite {
        Box::leak(Box::new(CallSite {
            component: component.to_owned(),
            file: file.map(Path::to_owned),
            limits,
        }))
    }

    /// The component's name.
    pub fn component(&self) -> &str {
        &self.component
    }

    /// Path of its library; none where it is linked.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Marks this thread as being in `callback`, until the mark is dropped.
    #[inline]
    pub fn enter(&'static self, callback: &'static str) -> Mark {
        let record = ThreadRecord::mine();
        let before = CURRENT.get();
        let call = Call {
            site: self,
            callback,
            record,
            depth: before.map_or(0, |before| before.depth) + 1,
        };
        if POLLS.get() == call.depth {
            record.enter_poll(call);
            return call.mark(record, None);
        }
        call.mark(record, Some(record.enter(Some(call))))
    }
}

impl Call {
    /// The component.
    pub fn site(self) -> &'static CallSite {
        self.site
    }

    /// The method's name.
    pub fn callback(self) -> &'static str {
        self.callback
    }

    /// Depth of nested plugin calls, this one included.
    pub fn depth(self) -> u32 {
        self.depth
    }

    /// Whether it opens a library, or makes a component.
    pub fn is_create(self) -> bool {
        matches!(self.callback, OPENING | CREATE)
    }

    /// How long it may run without a sign of progress.
    pub fn limit(self) -> Limit {
        if self.is_create() {
            self.site.limits.create
        } else {
            self.site.limits.call
        }
    }

    /// Marks this thread as working for the same call, until the mark is dropped. Dropping it
    /// counts as progress of the call.
    pub fn enter(self) -> Mark {
        let record = ThreadRecord::mine();
        // The watcher checks the thread that made the call, not this one.
        self.mark(record, Some(record.enter(None)))
    }

    /// The mark of a call. A poll has nothing to restore.
    #[inline]
    fn mark(self, record: &'static ThreadRecord, saved: Option<SavedState>) -> Mark {
        let before = CURRENT.replace(Some(self));
        // The mark must be written before the call can fault.
        compiler_fence(Ordering::SeqCst);
        if let (Some(before), Some(_)) = (before, &saved) {
            before.record.beat_from(record);
        }
        Mark {
            call: self,
            before,
            record,
            saved,
        }
    }
}

/// Exists while a thread is in a call.
#[must_use]
#[derive(Debug)]
pub struct Mark {
    call: Call,
    before: Option<Call>,
    record: &'static ThreadRecord,
    /// The thread's record before this mark; none of a poll.
    saved: Option<SavedState>,
}

impl Drop for Mark {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        CURRENT.set(self.before);
        // The end of a poll says nothing about what is polled for.
        let Some(saved) = self.saved.take() else {
            return;
        };
        self.record.leave(saved);
        // The end of work for a call, or of a call within it, is progress of the call.
        self.call.record.beat_from(self.record);
        if let Some(before) = self.before {
            before.record.beat_from(self.record);
        }
    }
}

/// Exists while a thread polls.
#[must_use]
#[derive(Debug)]
pub struct Polls {
    record: &'static ThreadRecord,
    before: Option<BeforePolls>,
    depth_before: u32,
}

impl Drop for Polls {
    fn drop(&mut self) {
        POLLS.set(self.depth_before);
        if let Some(before) = self.before.take() {
            self.record.end_polls(before);
        }
        self.record.beat();
    }
}

/// Until the returned value is dropped, the calls of this thread are polls: to a watcher they are
/// one call, and only what happens within them is a sign of progress.
pub fn polls() -> Polls {
    let record = ThreadRecord::mine();
    let depth = CURRENT.get().map_or(0, |call| call.depth) + 1;
    Polls {
        record,
        before: Some(record.begin_polls()),
        depth_before: POLLS.replace(depth),
    }
}

/// The innermost call that this thread is in. It allocates nothing and takes no lock.
pub fn current() -> Option<Call> {
    CURRENT.get()
}

/// Records progress of the call that this thread is in, or works for.
pub fn progress() {
    if let Some(call) = CURRENT.get() {
        call.record.beat_from(ThreadRecord::mine());
    }
}

/// As [`about`], for a name given as `&str`.
pub fn about_text(subject: &str) -> About {
    about(&Arc::from(subject))
}

#[cfg(test)]
mod tests;
