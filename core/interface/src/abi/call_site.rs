//! Which component's method a thread is in, on the host's side: what is left to say when a plugin's call takes the whole
//! process down, and what is waited for when it does not return.

mod seat;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::Duration;

pub use seat::{About, Pending, about, pending};
use seat::{Seat, Seated};

/// The call that opens a library, for [`CallSite::enter`].
pub const OPENING: &str = "opening";

/// The call that makes a component.
pub(super) const CREATE: &str = "create";

/// How long a call may go on without a sign of progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// For ever.
    #[default]
    None,
    /// For so long.
    After(Duration),
    /// It waits for other ranks, so that its silence says nothing of the plugin.
    OfOthers,
}

/// The limits of a component's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Of opening its library, and of making it.
    pub create: Limit,
    /// Of every other call.
    pub call: Limit,
}

/// A component that was made. It is never freed: whoever handles a fault may still ask for it.
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
    /// The seat of the thread that made it.
    seat: &'static Seat,
    /// Calls around it, itself counted.
    depth: u32,
}

thread_local! {
    // Constant and without a destructor, so that a signal handler may read it.
    static CURRENT: Cell<Option<Call>> = const { Cell::new(None) };
}

impl CallSite {
    /// The component of this name, from the library `file`, or linked.
    pub fn new(component: &str, file: Option<&Path>) -> &'static CallSite {
        CallSite::limited(component, file, Limits::default())
    }

    /// As [`CallSite::new`], with limits for whoever watches.
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

    /// Its library; none where it is linked.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Marks this thread as being in `callback`, until the mark is dropped.
    pub fn enter(&'static self, callback: &'static str) -> Mark {
        let seat = Seat::mine();
        let before = CURRENT.get();
        let call = Call {
            site: self,
            callback,
            seat,
            depth: before.map_or(0, |before| before.depth) + 1,
        };
        call.mark(seat, seat.enter(Some(call)))
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

    /// Calls of plugins around it, itself counted.
    pub fn depth(self) -> u32 {
        self.depth
    }

    /// Whether it opens a library, or makes a component.
    pub fn is_create(self) -> bool {
        matches!(self.callback, OPENING | CREATE)
    }

    /// How long it may go on without a sign of progress.
    pub fn limit(self) -> Limit {
        if self.is_create() {
            self.site.limits.create
        } else {
            self.site.limits.call
        }
    }

    /// Marks this thread as being in the same call, until the mark is dropped: for threads that work for it. That it is
    /// dropped is a sign of the call's progress.
    pub fn enter(self) -> Mark {
        let seat = Seat::mine();
        // Judged is the thread that made the call.
        self.mark(seat, seat.enter(None))
    }

    fn mark(self, seat: &'static Seat, seated: Seated) -> Mark {
        let before = CURRENT.replace(Some(self));
        // A fault of the call comes after.
        compiler_fence(Ordering::SeqCst);
        if let Some(before) = before {
            before.seat.beat();
        }
        Mark {
            call: self,
            before,
            seat,
            seated: Some(seated),
        }
    }
}

/// Holds while a thread is in a call.
#[must_use]
#[derive(Debug)]
pub struct Mark {
    call: Call,
    before: Option<Call>,
    seat: &'static Seat,
    /// What this thread was seen in before.
    seated: Option<Seated>,
}

impl Drop for Mark {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        CURRENT.set(self.before);
        if let Some(seated) = self.seated.take() {
            self.seat.leave(seated);
        }
        // What was done for a call, or within it, is progress of it.
        self.call.seat.beat();
        if let Some(before) = self.before {
            before.seat.beat();
        }
    }
}

/// The innermost call that this thread is in. It allocates nothing and takes no lock.
pub fn current() -> Option<Call> {
    CURRENT.get()
}

/// A sign of progress of the call that this thread is in, or works for.
pub fn progress() {
    if let Some(call) = CURRENT.get() {
        call.seat.beat();
    }
}

/// As [`about`], for a name that is at hand as text.
pub fn about_text(subject: &str) -> About {
    about(&Arc::from(subject))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_nest_and_threads_are_apart() {
        let names = || current().map(|call| (call.site().component(), call.callback()));
        let outer = CallSite::new("cpu", None).enter("launch");
        let call = current().expect("just entered");
        {
            let site = CallSite::new("nf4", Some(Path::new("/plugins/libnf4.so")));
            let _inner = site.enter("decode");
            assert_eq!(names(), Some(("nf4", "decode")));
            assert_eq!(current().map(Call::depth), Some(2));
        }
        assert_eq!(names(), Some(("cpu", "launch")));
        let elsewhere = std::thread::spawn(move || {
            let before = current().is_none();
            let _mark = call.enter();
            (before, current().map(Call::callback))
        });
        assert_eq!(elsewhere.join().expect("no panic"), (true, Some("launch")));
        drop(outer);
        assert!(current().is_none());
    }

    /// The call of `component` as others see it.
    fn seen(component: &str) -> Option<Pending> {
        let mut all = pending().into_iter();
        all.find(|one| one.call.site().component() == component)
    }

    #[test]
    fn other_threads_see_the_innermost_call_its_subject_and_its_progress() {
        let limits = Limits {
            create: Limit::After(Duration::from_secs(10)),
            call: Limit::After(Duration::from_secs(900)),
        };
        let site = CallSite::limited("seen", None, limits);
        let outer = site.enter("launch");
        let first = seen("seen").expect("it is pending");
        assert_eq!(
            (first.call.callback(), first.subject.clone()),
            ("launch", None)
        );
        assert_eq!(first.call.limit(), limits.call);
        {
            let _about = about_text("lm_head.weight");
            let _inner = site.enter(CREATE);
            let inner = seen("seen").expect("it is pending");
            assert_eq!(inner.subject.as_deref(), Some("lm_head.weight"));
            assert_eq!(
                (inner.call.callback(), inner.call.limit()),
                (CREATE, limits.create)
            );
            assert_ne!(inner.number, first.number);
        }
        let again = seen("seen").expect("it is pending");
        assert_eq!((again.number, again.subject.clone()), (first.number, None));
        assert!(again.beats > first.beats, "what it called has returned");
        // Work of another thread for the call is seen as its progress, and not as a call of its own.
        let call = current().expect("in a call");
        let elsewhere = std::thread::spawn(move || {
            let _mark = call.enter();
            progress();
            let named = |one: &Pending| one.call.site().component() == "seen";
            pending().into_iter().filter(named).count()
        });
        assert_eq!(elsewhere.join().expect("no panic"), 1);
        assert!(seen("seen").expect("it is pending").beats >= again.beats + 2);
        drop(outer);
        assert!(seen("seen").is_none());
    }
}
