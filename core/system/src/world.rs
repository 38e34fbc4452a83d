//! The ranks of a run, and those of this process.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The ranks of a run, numbered process by process; processes are numbered machine by machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct World {
    /// All ranks.
    pub ranks: u32,
    /// Processes, each with the same number of ranks.
    pub processes: u32,
    /// Processes on each machine.
    pub processes_per_machine: u32,
    /// The number of this process.
    pub process: u32,
}

impl World {
    /// One rank.
    pub const ONE: World = World::threads(1);

    /// A single process with this many ranks.
    pub const fn threads(ranks: u32) -> World {
        World {
            ranks,
            processes: 1,
            processes_per_machine: 1,
            process: 0,
        }
    }

    /// Ranks of each process.
    pub fn ranks_per_process(&self) -> u32 {
        self.ranks / self.processes
    }

    /// Ranks of each machine.
    pub fn ranks_per_machine(&self) -> u32 {
        self.ranks_per_process() * self.processes_per_machine
    }

    /// Machines.
    pub fn machines(&self) -> u32 {
        self.processes / self.processes_per_machine
    }

    /// The ranks of this process.
    pub fn own_ranks(&self) -> Range<u32> {
        let first = self.process * self.ranks_per_process();
        first..first + self.ranks_per_process()
    }

    /// Whether this process writes the common result.
    pub fn writes(&self) -> bool {
        self.process == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_numbered_process_by_process() {
        let world = World {
            ranks: 8,
            processes: 4,
            processes_per_machine: 2,
            process: 3,
        };
        assert_eq!(world.own_ranks(), 6..8);
        assert_eq!((world.ranks_per_machine(), world.machines()), (4, 2));
        assert_eq!(World::ONE.own_ranks(), 0..1);
    }
}
