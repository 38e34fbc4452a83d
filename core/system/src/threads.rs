//! The host's threads and log as the services for plugins.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use espalier_interface::abi::call_site::{self, Call};
use espalier_interface::{LogLevel, Services};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::failure::UsageError;
use crate::stop::StopFlag;

/// Most threads of a process: far more than a machine has cores.
pub const MAX_THREADS: usize = 1024;

/// Services over one pool of threads. A process creates one and never frees it, since plugins can
/// keep a reference.
pub struct HostServices {
    pool: ThreadPool,
    stop: StopFlag,
    /// Services of one thread, the caller: all shares of that size are this one.
    single: OnceLock<&'static HostServices>,
}

impl HostServices {
    /// Starts `threads` threads, or one per core.
    ///
    /// # Errors
    /// Where the operating system starts no more threads.
    pub fn start(threads: Option<usize>) -> Result<&'static HostServices, UsageError> {
        HostServices::start_until(threads, StopFlag::new())
    }

    /// As [`HostServices::start`]; plugins see a stop request when `stop` has one.
    ///
    /// The current thread is one of the threads, unless it is one of a pool already: its own loops
    /// then begin at once and need not wait for a thread that sleeps.
    ///
    /// # Errors
    /// Where the operating system starts no more threads.
    pub fn start_until(
        threads: Option<usize>,
        stop: StopFlag,
    ) -> Result<&'static HostServices, UsageError> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let count = threads.unwrap_or_else(cores).max(1);
        let builder = || {
            let builder = ThreadPoolBuilder::new().num_threads(count);
            builder.thread_name(|index| format!("host-{index}"))
        };
        // A pool of the current thread alone could do nothing for other threads.
        let with_current = (count > 1).then(|| builder().use_current_thread().build().ok());
        let pool = match with_current.flatten() {
            Some(pool) => pool,
            None => builder().build().map_err(|error| UsageError {
                message: format!("{count} threads cannot be started: {error}"),
                next_step: "lower --threads".to_owned(),
            })?,
        };
        let single = OnceLock::new();
        Ok(Box::leak(Box::new(HostServices { pool, stop, single })))
    }

    /// Services with `1 / parts` as many threads, at least one, which stop with these.
    ///
    /// # Errors
    /// Where the operating system starts no more threads.
    pub fn share(&self, parts: usize) -> Result<&'static HostServices, UsageError> {
        let start = |count| HostServices::start_until(Some(count), self.stop.clone());
        match (self.threads() / parts, self.single.get()) {
            (count @ 2.., _) => start(count),
            (_, Some(single)) => Ok(single),
            (_, None) => {
                let made = start(1)?;
                Ok(self.single.get_or_init(|| made))
            }
        }
    }

    /// Runs `work` on the pool, so that its own parallel loops use these threads.
    pub fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.pool.install(work)
    }
}

impl Services for HostServices {
    fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.threads() == 1 {
            return (0..count).for_each(|index| {
                body(index);
                call_site::progress();
            });
        }
        let next = AtomicUsize::new(0);
        let indices = || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            (index < count).then_some(index)
        };
        // Work that a plugin's call starts on other threads is attributed to that call.
        let caller = call_site::current();
        self.pool.in_place_scope(|scope| {
            for _ in 1..self.threads().min(count) {
                scope.spawn(|_| {
                    while let Some(index) = indices() {
                        let _mark = caller.map(Call::enter);
                        body(index);
                    }
                });
            }
            while let Some(index) = indices() {
                body(index);
                call_site::progress();
            }
        });
    }

    fn log(&self, level: LogLevel, message: &str) {
        match level {
            LogLevel::ERROR => tracing::error!(target: "plugin", "{message}"),
            LogLevel::WARN => tracing::warn!(target: "plugin", "{message}"),
            LogLevel::INFO => tracing::info!(target: "plugin", "{message}"),
            _ => tracing::debug!(target: "plugin", "{message}"),
        }
    }

    fn progress(&self, task: &str, done: u64, total: u64) {
        call_site::progress();
        tracing::debug!(target: "plugin", task, done, total, "progress");
    }

    fn cancelled(&self) -> bool {
        self.stop.requested().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_index_runs_once_for_any_number_of_threads() {
        for threads in [1, 2, 3] {
            let services = HostServices::start(Some(threads)).expect("a few threads");
            assert_eq!(services.threads(), threads);
            let counts: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
            services.parallel_for(counts.len(), &|index| {
                counts[index].fetch_add(1, Ordering::Relaxed);
            });
            assert!(
                counts
                    .iter()
                    .all(|count| count.load(Ordering::Relaxed) == 1)
            );
        }
    }

    #[test]
    fn nested_loops_end() {
        let services = HostServices::start(Some(2)).expect("two threads");
        let sum = AtomicUsize::new(0);
        services.parallel_for(8, &|_| {
            services.parallel_for(8, &|inner| {
                sum.fetch_add(inner, Ordering::Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), 8 * 28);
    }

    #[test]
    fn the_stop_flag_reaches_plugins() {
        let stop = StopFlag::new();
        let services = HostServices::start_until(Some(1), stop.clone()).expect("a thread");
        assert!(!services.cancelled());
        stop.request(15);
        assert!(services.cancelled());
    }
}
