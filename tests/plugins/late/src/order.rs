//! The state of all queues and what the host waits for -> the stream whose first task runs next.

use espalier_interface::random::{Purpose, key, philox};

use crate::queues::{Point, Queues};

/// When tasks run. A program that orders its streams by events gets the same results in every
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A task runs when the host waits for it or for a task that waits for it, and not before. It
    /// shows a stream that should have waited for a copy to it.
    Late,
    /// A task of a stream besides the compute stream runs as soon as its waits are done. All that
    /// may run on other streams runs before the stream that the host waits for. It shows a copy
    /// that should have waited for the compute stream.
    Early,
    /// At every call, a random number of tasks of random streams run.
    Mixed,
}

impl Order {
    /// The order called `name`.
    pub fn named(name: &str) -> Option<Order> {
        match name {
            "late" => Some(Order::Late),
            "early" => Some(Order::Early),
            "mixed" => Some(Order::Mixed),
            _ => None,
        }
    }
}

/// The host's call.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// It has put something on a stream.
    Put,
    /// It waits for a point.
    Waiting(Point),
}

/// Chooses which task runs next.
pub struct Scheduler {
    order: Order,
    key: [u32; 2],
    /// Random words drawn so far.
    drawn: u64,
}

impl Scheduler {
    /// A scheduler of device number `device`.
    pub fn new(order: Order, seed: u64, device: u32) -> Self {
        Scheduler {
            order,
            key: key(seed, Purpose::SYNTHETIC, u64::from(device)),
            drawn: 0,
        }
    }

    /// How many tasks may run at this call; `None`: as many as [`Scheduler::next`] names.
    pub fn limit(&mut self, moment: Moment) -> Option<u64> {
        match (self.order, moment) {
            (Order::Mixed, Moment::Put) => Some(u64::from(self.below(4))),
            _ => None,
        }
    }

    /// The stream whose first task runs next; none where nothing more runs at this call.
    pub fn next(&mut self, queues: &Queues, moment: Moment) -> Option<usize> {
        let needed = match moment {
            Moment::Put => None,
            Moment::Waiting(point) => Some(queues.next_for(point)?),
        };
        match (self.order, moment) {
            (Order::Late, _) => needed,
            (Order::Early, Moment::Put) => (1..queues.len()).find(|&other| queues.is_ready(other)),
            (Order::Early, Moment::Waiting(point)) => {
                let mut others = (0..queues.len()).filter(|&other| other != point.stream);
                others.find(|&other| queues.is_ready(other)).or(needed)
            }
            (Order::Mixed, _) => self.random(queues).or(needed),
        }
    }

    /// A random stream whose first task may run.
    fn random(&mut self, queues: &Queues) -> Option<usize> {
        let ready: Vec<usize> = (0..queues.len())
            .filter(|&stream| queues.is_ready(stream))
            .collect();
        if ready.is_empty() {
            return None;
        }
        let chosen = self.below(ready.len() as u32);
        ready.get(chosen as usize).copied()
    }

    /// A random number below `count`.
    fn below(&mut self, count: u32) -> u32 {
        let counter = [self.drawn as u32, (self.drawn >> 32) as u32, 0, 0];
        self.drawn += 1;
        philox(self.key, counter)[0] % count
    }
}
