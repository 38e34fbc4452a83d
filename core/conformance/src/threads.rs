//! Services with a given number of threads, to make the same call of a component in several ways.

use std::sync::atomic::{AtomicUsize, Ordering};

use espalier_interface::Services;

/// The order in which one thread takes the indices of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the first to the last.
    Forward,
    /// From the last to the first.
    Backward,
}

/// Services whose loops run on `count` threads of their own. The threads yield between indices, so
/// that they interleave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Number of threads, at least 1.
    pub count: usize,
    /// The order in which indices are handed out.
    pub order: Order,
}

impl Threads {
    /// `count` threads, indices in rising order.
    pub const fn new(count: usize) -> Self {
        Threads {
            count,
            order: Order::Forward,
        }
    }
}

impl Services for Threads {
    fn threads(&self) -> usize {
        self.count
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return;
                }
                match self.order {
                    Order::Forward => body(index),
                    Order::Backward => body(count - 1 - index),
                }
                std::thread::yield_now();
            }
        };
        let more = self.count.min(count).saturating_sub(1);
        std::thread::scope(|scope| {
            for _ in 0..more {
                scope.spawn(work);
            }
            work();
        });
    }
}
