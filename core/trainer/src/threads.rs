//! The host's threads and log as the services that plugins are given.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use espalier_interface::{LogLevel, Services};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// Services over one pool of threads. A process makes one and keeps it: plugins may hold on to it for ever.
pub struct HostServices {
    pool: ThreadPool,
    stop: Arc<AtomicUsize>,
}

impl HostServices {
    /// Starts `threads` threads, at least one. `stop` other than 0 means that the user asked to stop.
    ///
    /// # Errors
    /// Where the operating system starts no more threads.
    pub fn start(
        threads: usize,
        stop: Arc<AtomicUsize>,
    ) -> Result<&'static HostServices, ThreadPoolBuildError> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .thread_name(|index| format!("host-{index}"))
            .build()?;
        Ok(Box::leak(Box::new(HostServices { pool, stop })))
    }

    /// The pool itself, for the host's own work.
    pub fn pool(&self) -> &ThreadPool {
        &self.pool
    }
}

impl Services for HostServices {
    fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.threads() == 1 {
            return (0..count).for_each(body);
        }
        self.pool
            .install(|| (0..count).into_par_iter().for_each(body));
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
        tracing::debug!(target: "plugin", task, done, total, "progress");
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_index_runs_once_whatever_the_threads() {
        for threads in [1, 2, 3] {
            let services = HostServices::start(threads, Arc::default()).expect("a few threads");
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
    fn a_loop_within_a_loop_ends() {
        let services = HostServices::start(2, Arc::default()).expect("two threads");
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
        let stop = Arc::new(AtomicUsize::new(0));
        let services = HostServices::start(1, Arc::clone(&stop)).expect("a thread");
        assert!(!services.cancelled());
        stop.store(15, Ordering::Relaxed);
        assert!(services.cancelled());
    }
}
