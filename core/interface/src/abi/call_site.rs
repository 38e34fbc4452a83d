//! Which component's method a thread is in, on the host's side: what is left to say when a plugin's call takes the whole
//! process down.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, compiler_fence};

/// A component that was made. It is never freed: whoever handles a fault may still ask for it.
#[derive(Debug)]
pub struct CallSite {
    component: String,
    file: Option<PathBuf>,
}

/// A call of a component's method.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    site: &'static CallSite,
    callback: &'static str,
}

thread_local! {
    // Constant and without a destructor, so that a signal handler may read it.
    static CURRENT: Cell<Option<Call>> = const { Cell::new(None) };
}

impl CallSite {
    /// The component of this name, from the library `file`, or linked.
    pub fn new(component: &str, file: Option<&Path>) -> &'static CallSite {
        Box::leak(Box::new(CallSite {
            component: component.to_owned(),
            file: file.map(Path::to_owned),
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
        let site = self;
        Call { site, callback }.enter()
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

    /// Marks this thread as being in the same call, until the mark is dropped: for threads that work for it.
    pub fn enter(self) -> Mark {
        let before = CURRENT.replace(Some(self));
        // A fault of the call comes after.
        compiler_fence(Ordering::SeqCst);
        Mark { before }
    }
}

/// Holds while a thread is in a call.
#[must_use]
#[derive(Debug)]
pub struct Mark {
    before: Option<Call>,
}

impl Drop for Mark {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        CURRENT.set(self.before);
    }
}

/// The innermost call that this thread is in. It allocates nothing and takes no lock.
pub fn current() -> Option<Call> {
    CURRENT.get()
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
}
