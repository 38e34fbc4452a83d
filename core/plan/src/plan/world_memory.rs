//! The plan of one rank -> the memory of each rank, process and machine of its world.

use std::fmt;

use espalier_interface::bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{HostMemoryPlan, RunPlan};

/// The planned memory of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorldMemory {
    /// Ranks of each process.
    pub ranks_per_process: u32,
    /// Processes of each machine.
    pub processes_per_machine: u32,
    /// Bytes that each rank alone holds in a step, on its device and on its host, without the
    /// program.
    pub rank_bytes: u64,
    /// Host memory of each process.
    pub process: HostMemoryPlan,
    /// Host memory of each machine.
    pub machine: HostMemoryPlan,
}

impl WorldMemory {
    /// The memory of a plan's world.
    pub fn of(plan: &RunPlan) -> Self {
        let (world, sizes) = (plan.demand.world, plan.storage_layout().sizes());
        let state = sizes.frozen_on_host + sizes.trained_on_host;
        let on_host = state + sizes.saved_on_host + sizes.staging;
        WorldMemory {
            ranks_per_process: world.ranks_per_process(),
            processes_per_machine: world.processes_per_machine,
            rank_bytes: plan.memory.on_device() + on_host,
            process: HostMemoryPlan::of_process(plan),
            machine: HostMemoryPlan::of(plan),
        }
    }

    /// Ranks of each machine.
    pub fn ranks_per_machine(&self) -> u32 {
        self.ranks_per_process * self.processes_per_machine
    }
}

/// The memory of a world with several ranks, to follow that of a process; empty for one rank.
impl fmt::Display for WorldMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ranks_per_machine() < 2 {
            return Ok(());
        }
        let (ranks, rank_bytes) = (self.ranks_per_process, Bytes(self.rank_bytes));
        match ranks {
            1 => write!(f, " (its rank {rank_bytes}")?,
            _ => write!(f, " ({ranks} ranks of {rank_bytes} each")?,
        }
        match self.processes_per_machine {
            1 => write!(f, ")"),
            processes => {
                let machine = Bytes(self.machine.needed());
                write!(f, "; the machine's {processes} processes {machine})")
            }
        }
    }
}
