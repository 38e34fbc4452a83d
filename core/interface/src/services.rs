//! The services that the host offers plugins: log, progress, cancellation and the host's threads.

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct LogLevel(pub u32);

impl LogLevel {
    /// The run cannot continue as asked.
    pub const ERROR: LogLevel = LogLevel(1);
    /// The user should know.
    pub const WARN: LogLevel = LogLevel(2);
    /// Progress of the run.
    pub const INFO: LogLevel = LogLevel(3);
    /// For the plugin's author.
    pub const DEBUG: LogLevel = LogLevel(4);
}

/// The services that the host offers every plugin. A plugin has no thread pool and no logger of its
/// own.
pub trait Services: Send + Sync {
    /// Number of threads that `parallel_for` may use, at least 1.
    fn threads(&self) -> usize;

    /// Calls `body(0) .. body(count - 1)`, each once, on the host's threads, and returns when all
    /// are done.
    ///
    /// The order is not fixed, so calls must be independent. `count` must follow from shapes alone,
    /// never from `threads()`, where a floating-point result depends on how the work was split.
    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync));

    /// Writes a line to the host's log.
    fn log(&self, level: LogLevel, message: &str) {
        let _ = (level, message);
    }

    /// Reports `done` of `total` units of a long task named `task`.
    fn progress(&self, task: &str, done: u64, total: u64) {
        let _ = (task, done, total);
    }

    /// True when the user asked to stop; a long call returns `ErrorCode::CANCELLED` soon after.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Services that run everything on the calling thread, for an author's own tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Services for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(body);
    }
}
