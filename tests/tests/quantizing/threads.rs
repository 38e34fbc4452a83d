//! Services of several threads that process indices in an unusual order.

use std::sync::atomic::{AtomicUsize, Ordering};

use espalier_interface::Services;

/// Services with `0` threads, which take the last index first.
pub struct Threads(pub usize);

impl Services for Threads {
    fn threads(&self) -> usize {
        self.0
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        let left = AtomicUsize::new(count);
        std::thread::scope(|scope| {
            for _ in 0..self.0 {
                scope.spawn(|| {
                    let next = || {
                        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                            n.checked_sub(1)
                        })
                    };
                    while let Ok(n) = next() {
                        body(n - 1);
                    }
                });
            }
        });
    }
}
