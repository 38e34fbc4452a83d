//! The table of the host's services, and the plugin's view of it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use abi_stable::StableAbi;
use abi_stable::std_types::RStr;

use super::Opaque;
use crate::{LogLevel, Services};

/// A function that runs one index of a parallel loop. (abi_stable checks no nested function types.)
#[repr(transparent)]
#[derive(StableAbi, Clone, Copy)]
pub struct BodyCall {
    call: extern "C" fn(Opaque, usize),
}

/// [`Services`] in the form that crosses the boundary. The host never frees `context`.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct ServicesTable {
    context: Opaque,
    threads: extern "C" fn(Opaque) -> usize,
    parallel_for: extern "C" fn(Opaque, usize, Opaque, BodyCall),
    log: extern "C" fn(Opaque, u32, RStr<'_>),
    progress: extern "C" fn(Opaque, RStr<'_>, u64, u64),
    cancelled: extern "C" fn(Opaque) -> bool,
}

// SAFETY: `context` points to a `&'static dyn Services`, which is Send and Sync.
unsafe impl Send for ServicesTable {}
// SAFETY: as above.
unsafe impl Sync for ServicesTable {}

impl ServicesTable {
    /// The table of `services`. It leaks a pointer to them, since plugins may keep the table for
    /// ever.
    pub fn new(services: &'static dyn Services) -> Self {
        let context: &'static &'static dyn Services = Box::leak(Box::new(services));
        ServicesTable {
            context: std::ptr::from_ref(context).cast(),
            threads,
            parallel_for,
            log,
            progress,
            cancelled,
        }
    }
}

fn host<'a>(context: Opaque) -> &'a dyn Services {
    // SAFETY: `ServicesTable::new` made `context` from a leaked `&'static dyn Services`.
    unsafe { *context.cast::<&dyn Services>() }
}

extern "C" fn threads(context: Opaque) -> usize {
    host(context).threads()
}

extern "C" fn parallel_for(context: Opaque, count: usize, body: Opaque, run: BodyCall) {
    let body = Body(body);
    host(context).parallel_for(count, &move |index| {
        let whole = &body;
        (run.call)(whole.0, index);
    });
}

/// The plugin's closure. The plugin's side requires that it is `Sync`.
struct Body(Opaque);

// SAFETY: `ServicesTable::parallel_for` passes a `&(dyn Fn(usize) + Sync)`.
unsafe impl Sync for Body {}

extern "C" fn log(context: Opaque, level: u32, message: RStr<'_>) {
    host(context).log(LogLevel(level), &readable(&message));
}

extern "C" fn progress(context: Opaque, task: RStr<'_>, done: u64, total: u64) {
    host(context).progress(&readable(&task), done, total);
}

/// A plugin's text; bytes that are not UTF-8 are replaced.
fn readable<'a>(text: &'a RStr<'_>) -> std::borrow::Cow<'a, str> {
    String::from_utf8_lossy(text.as_rslice().as_slice())
}

extern "C" fn cancelled(context: Opaque) -> bool {
    host(context).cancelled()
}

/// The body of a loop and the first panic in it. Panics must not reach the host's threads.
struct Guarded<'a> {
    body: &'a (dyn Fn(usize) + Sync),
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

extern "C" fn run_guarded(guarded: Opaque, index: usize) {
    // SAFETY: `parallel_for` below passes a `Guarded` that outlives the call.
    let guarded = unsafe { &*guarded.cast::<Guarded<'_>>() };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (guarded.body)(index))) {
        let mut first = guarded
            .panic
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        first.get_or_insert(payload);
    }
}

impl Services for ServicesTable {
    fn threads(&self) -> usize {
        (self.threads)(self.context)
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        let guarded = Guarded {
            body,
            panic: Mutex::new(None),
        };
        let run = BodyCall { call: run_guarded };
        (self.parallel_for)(
            self.context,
            count,
            std::ptr::from_ref(&guarded).cast(),
            run,
        );
        let panic = guarded
            .panic
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    fn log(&self, level: LogLevel, message: &str) {
        (self.log)(self.context, level.0, message.into());
    }

    fn progress(&self, task: &str, done: u64, total: u64) {
        (self.progress)(self.context, task.into(), done, total);
    }

    fn cancelled(&self) -> bool {
        (self.cancelled)(self.context)
    }
}
