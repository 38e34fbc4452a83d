//! Services on plain threads, for tests of independence from the number of threads.

use espalier_interface::Services;

/// Runs calls on this many threads.
pub(crate) struct Threads(pub usize);

impl Services for Threads {
    fn threads(&self) -> usize {
        self.0
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for thread in 0..self.0 {
                scope.spawn(move || (thread..count).step_by(self.0).for_each(body));
            }
        });
    }
}
