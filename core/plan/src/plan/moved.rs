//! An action of a schedule -> the bytes that a rank moves for it, by link.

use std::ops::{Add, AddAssign, Mul};

use espalier_interface::DType;
use espalier_interface::schedule::{Act, Action, Part, Place};
use espalier_system::world::World;
use serde::Serialize;

use super::RunPlan;
use crate::shard_layout::ShardLayout;
use crate::step_plan::RegionSizes;

/// Bytes that one rank moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Bytes from host memory to the rank's device.
    pub host_to_device: u64,
    /// Bytes from the rank's device to host memory.
    pub device_to_host: u64,
    /// Bytes received from other ranks of the same machine.
    pub between_ranks: u64,
    /// Bytes received from ranks of other machines.
    pub between_machines: u64,
}

impl Moved {
    /// Bytes in all.
    pub fn total(&self) -> u64 {
        self.host_to_device + self.device_to_host + self.between_ranks + self.between_machines
    }
}

impl Moved {
    /// What was moved since `before`.
    pub(super) fn since(&self, before: Moved) -> Moved {
        Moved {
            host_to_device: self.host_to_device - before.host_to_device,
            device_to_host: self.device_to_host - before.device_to_host,
            between_ranks: self.between_ranks - before.between_ranks,
            between_machines: self.between_machines - before.between_machines,
        }
    }
}

impl Add for Moved {
    type Output = Moved;

    fn add(self, other: Moved) -> Moved {
        Moved {
            host_to_device: self.host_to_device + other.host_to_device,
            device_to_host: self.device_to_host + other.device_to_host,
            between_ranks: self.between_ranks + other.between_ranks,
            between_machines: self.between_machines + other.between_machines,
        }
    }
}

impl AddAssign for Moved {
    fn add_assign(&mut self, other: Moved) {
        *self = *self + other;
    }
}

impl Mul<u64> for Moved {
    type Output = Moved;

    fn mul(self, times: u64) -> Moved {
        Moved {
            host_to_device: self.host_to_device * times,
            device_to_host: self.device_to_host * times,
            between_ranks: self.between_ranks * times,
            between_machines: self.between_machines * times,
        }
    }
}

/// Computes the bytes that actions move.
pub struct Mover {
    shard_layout: ShardLayout,
    sizes: Vec<RegionSizes>,
    gradients: DType,
    world: World,
}

impl Mover {
    /// A mover for the actions of a run's schedule.
    pub fn of(plan: &RunPlan) -> Self {
        Mover {
            shard_layout: plan.shard_layout.clone(),
            sizes: plan.shard_layout.region_sizes(plan.dtypes),
            gradients: plan.dtypes.gradients,
            world: plan.demand.world,
        }
    }

    /// Most micro-batches of a sweep, which share what an action moves.
    pub fn sweep(&self) -> u64 {
        self.shard_layout.sweep.max(1)
    }

    /// The ranks of each machine.
    pub fn ranks_per_machine(&self) -> u64 {
        u64::from(self.world.ranks_per_machine())
    }

    /// The bytes that an action moves in a sweep: at most, where a sweep has fewer micro-batches
    /// and their saved activations move.
    pub fn moved(&self, action: &Action) -> Moved {
        let (host_to_device, device_to_host) = match action.act {
            Act::Fetch => (self.carried(action), 0),
            Act::Offload => (0, self.carried(action)),
            Act::Gather => return self.gathered(action),
            Act::Reduce => return self.reduced(action.unit),
            Act::Forward | Act::Backward | Act::Release | Act::Norm | Act::Optimize => (0, 0),
        };
        Moved {
            host_to_device,
            device_to_host,
            ..Moved::default()
        }
    }

    /// Bytes between host and device: a rank's own part of a cut unit.
    fn carried(&self, action: &Action) -> u64 {
        let sizes = &self.sizes[action.unit];
        let frozen = match self.shard_layout.placements[action.unit].frozen {
            Place::Host => sizes.frozen,
            _ => sizes.frozen / self.shard_layout.parts,
        };
        let bytes = |part: &Part| match part {
            Part::Frozen => frozen,
            Part::Trainable => sizes.values,
            Part::Gradients => sizes.reduced,
            Part::Optimizer => sizes.state,
            Part::Saved => sizes.saved,
        };
        action.parts.iter().map(bytes).sum()
    }

    fn gathered(&self, action: &Action) -> Moved {
        let sizes = &self.sizes[action.unit];
        let bytes = |part: &Part| match part {
            Part::Frozen => sizes.frozen,
            Part::Trainable => sizes.trainable,
            Part::Gradients | Part::Optimizer | Part::Saved => 0,
        };
        let whole: u64 = action.parts.iter().map(bytes).sum();
        let parts = self.shard_layout.parts;
        self.spread(whole / parts, parts, 1)
    }

    /// Bytes of a reduction. A sum over the ranks that share a cut run leaves each rank its part
    /// (reduce-scatter). A sum over ranks that hold the same part, or over all ranks where nothing
    /// is cut, takes two such rounds (all-reduce).
    fn reduced(&self, unit: usize) -> Moved {
        let wire = self.shard_layout.wire.unwrap_or(self.gradients).bytes();
        let own = self.shard_layout.own_elements(unit) * wire;
        let (world, parts) = (u64::from(self.world.ranks), self.shard_layout.parts);
        if !self.shard_layout.is_cut(unit) {
            self.spread(2 * own.div_ceil(world), world, 1)
        } else {
            let replicas = world / parts;
            let among_replicas = self.spread(2 * own.div_ceil(replicas), replicas, parts);
            self.spread(own, parts, 1) + among_replicas
        }
    }

    /// Bytes that a rank receives where it takes `part` bytes from each other rank of its group.
    /// The group has `ranks` ranks, each `stride` apart.
    fn spread(&self, part: u64, ranks: u64, stride: u64) -> Moved {
        let near = ranks.min(self.ranks_per_machine().div_ceil(stride));
        Moved {
            between_ranks: part * (near - 1),
            between_machines: part * (ranks - near),
            ..Moved::default()
        }
    }
}
