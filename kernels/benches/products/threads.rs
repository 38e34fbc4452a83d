//! Threads that wait for loops, as those of training do.

use std::sync::atomic::{AtomicUsize, Ordering};

use espalier_interface::Services;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads, the calling one among them.
pub struct Threads {
    count: usize,
    pool: ThreadPool,
}

impl Threads {
    /// One thread, and as many as there are cores.
    pub fn one_and_all() -> [Threads; 2] {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        [1, all].map(|count| Threads {
            count,
            pool: ThreadPoolBuilder::new()
                .num_threads((count - 1).max(1))
                .build()
                .expect("threads can be started"),
        })
    }
}

impl Services for Threads {
    fn threads(&self) -> usize {
        self.count
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            let indices = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
            indices.take_while(|&idx| idx < count).for_each(body);
        };
        self.pool.in_place_scope(|scope| {
            for _ in 1..self.count.min(count) {
                scope.spawn(|_| work());
            }
            work();
        });
    }
}
