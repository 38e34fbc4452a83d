//! Units of a product -> their tasks, in one order that all threads take them from.
//!
//! A unit is packed and then multiplied. Two units' packed columns have room at once, so that
//! threads without a task of one unit pack the next: pack 0, pack 1, multiply 0, pack 2, multiply
//! 1, and so on. Every task waits for earlier ones of this order only, each of which a running
//! thread has taken. So the last task is reached, on any number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Units that are in memory at once.
pub(super) const BUFFERS: usize = 2;

/// The numbers of tasks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub units: usize,
    /// Packing tasks of a unit.
    pub packs: usize,
    /// Multiplying tasks of a unit.
    pub products: usize,
    /// Whether a unit's products need those of the unit before it.
    pub chained: bool,
}

/// A task of a unit, with its index among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Pack { unit: usize, idx: usize },
    Multiply { unit: usize, idx: usize },
}

impl Order {
    /// Tasks of all units.
    pub fn tasks(&self) -> usize {
        self.units * (self.packs + self.products)
    }

    /// Task `at` of the order.
    fn task(&self, at: usize) -> Task {
        let Some(later) = at.checked_sub(self.packs) else {
            return Task::Pack { unit: 0, idx: at };
        };
        let a_round = self.packs + self.products;
        let unit = (later / a_round).min(self.units - 1);
        let within = later - unit * a_round;
        let packs = if unit + 1 < self.units { self.packs } else { 0 };
        match within.checked_sub(packs) {
            Some(idx) => Task::Multiply { unit, idx },
            None => Task::Pack {
                unit: unit + 1,
                idx: within,
            },
        }
    }
}

/// Which tasks are taken, and which are done.
pub(super) struct Pipeline {
    order: Order,
    taken: AtomicUsize,
    /// Packing tasks done, of units with an even and an odd number.
    packed: [AtomicUsize; BUFFERS],
    /// Multiplying tasks done.
    multiplied: [AtomicUsize; BUFFERS],
}

impl Pipeline {
    pub fn new(order: Order) -> Self {
        Pipeline {
            order,
            taken: AtomicUsize::new(0),
            packed: Default::default(),
            multiplied: Default::default(),
        }
    }

    /// Takes tasks until none is left. `body` is called when what its task needs is done.
    pub fn run(&self, mut body: impl FnMut(Task)) {
        loop {
            let at = self.taken.fetch_add(1, Ordering::Relaxed);
            if at >= self.order.tasks() {
                return;
            }
            let task = self.order.task(at);
            self.wait_for(task);
            let done = match task {
                Task::Pack { unit, .. } => Done(&self.packed[unit % BUFFERS]),
                Task::Multiply { unit, .. } => Done(&self.multiplied[unit % BUFFERS]),
            };
            body(task);
            drop(done);
        }
    }

    /// Returns when the tasks are done that `task` needs.
    ///
    /// Of units that share a buffer, each is packed after the one before it is multiplied. So
    /// the tasks done of all of them tell which unit is done.
    fn wait_for(&self, task: Task) {
        let Order {
            packs,
            products,
            chained,
            ..
        } = self.order;
        match task {
            Task::Pack { unit, .. } => {
                wait(&self.multiplied[unit % BUFFERS], unit / BUFFERS * products);
            }
            Task::Multiply { unit, .. } => {
                wait(&self.packed[unit % BUFFERS], (unit / BUFFERS + 1) * packs);
                if chained && unit > 0 {
                    let before = unit - 1;
                    let done = (before / BUFFERS + 1) * products;
                    wait(&self.multiplied[before % BUFFERS], done);
                }
            }
        }
    }
}

/// A task that counts as done when it is dropped, also by a panic, so that no thread waits for it.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Returns when `counter` has reached `count`. What is waited for is being computed, by threads
/// that may have lost their processor.
fn wait(counter: &AtomicUsize, count: usize) {
    let mut turns = 0;
    while counter.load(Ordering::Acquire) < count {
        if turns < 100 {
            std::hint::spin_loop();
            turns += 1;
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use espalier_interface::Services;

    use super::*;
    use crate::matmul::threads::Threads;

    const ORDERS: [Order; 5] = [
        Order {
            units: 1,
            packs: 3,
            products: 4,
            chained: false,
        },
        Order {
            units: 2,
            packs: 1,
            products: 1,
            chained: true,
        },
        Order {
            units: 3,
            packs: 2,
            products: 5,
            chained: false,
        },
        Order {
            units: 5,
            packs: 4,
            products: 1,
            chained: true,
        },
        Order {
            units: 8,
            packs: 1,
            products: 7,
            chained: false,
        },
    ];

    #[test]
    fn every_task_runs_once_after_those_that_it_needs() {
        for order in ORDERS {
            for threads in [1, 2, 3, 7] {
                let pipeline = Pipeline::new(order);
                let done = Mutex::new(Vec::new());
                Threads(threads).parallel_for(threads, &|_| {
                    pipeline.run(|task| {
                        let seen = done.lock().unwrap().clone();
                        check(order, task, &seen);
                        done.lock().unwrap().push(task);
                    });
                });
                assert_eq!(done.into_inner().unwrap().len(), order.tasks());
            }
        }
    }

    /// Fails where a task begins before what it needs.
    fn check(order: Order, task: Task, seen: &[Task]) {
        assert!(!seen.contains(&task), "{task:?} ran twice");
        let packs = |of| (0..order.packs).map(move |idx| Task::Pack { unit: of, idx });
        let products = |of| (0..order.products).map(move |idx| Task::Multiply { unit: of, idx });
        let needed: Vec<Task> = match task {
            Task::Pack { unit, .. } if unit >= BUFFERS => products(unit - BUFFERS).collect(),
            Task::Pack { .. } => Vec::new(),
            Task::Multiply { unit, .. } if order.chained && unit > 0 => {
                packs(unit).chain(products(unit - 1)).collect()
            }
            Task::Multiply { unit, .. } => packs(unit).collect(),
        };
        assert!(
            needed.iter().all(|one| seen.contains(one)),
            "{task:?} came too early"
        );
    }

    #[test]
    fn a_task_that_panics_holds_up_no_other() {
        let pipeline = Pipeline::new(ORDERS[3]);
        // Without the hook of panics, whose backtrace takes more memory than these tests have.
        let fails = std::panic::AssertUnwindSafe(|| {
            pipeline.run(|task| {
                if task == (Task::Pack { unit: 0, idx: 1 }) {
                    std::panic::resume_unwind(Box::new("planned"));
                }
            });
        });
        assert!(std::panic::catch_unwind(fails).is_err());
        let mut rest = 0;
        pipeline.run(|_| rest += 1);
        assert_eq!(rest, ORDERS[3].tasks() - 2);
    }
}
