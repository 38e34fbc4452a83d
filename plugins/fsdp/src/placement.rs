//! Settings and a world -> where units are stored between steps, and the parts to fetch and gather.

use espalier_interface::schedule::{Part, Place, Placement, Schedule, ShardingRequest};
use espalier_interface::{PluginError, Result};

use crate::settings::{Gather, Offload, Settings, Strategy};

/// Number of ranks that share a unit's parts.
///
/// # Errors
/// `INVALID` where groups do not divide the world.
pub fn shard_ranks(settings: &Settings, request: &ShardingRequest) -> Result<u32> {
    let world = request.world.max(1);
    let ranks = match (settings.strategy, settings.shard_ranks) {
        (Strategy::Hybrid, 0) => request.ranks_per_machine.clamp(1, world),
        (Strategy::Hybrid, ranks) => ranks,
        (Strategy::FullShard | Strategy::ShardGradOp, _) => world,
    };
    match world % ranks {
        0 => Ok(ranks),
        _ => Err(PluginError::invalid(format!(
            "strategy \"hybrid\" cuts within groups of shard_ranks = {ranks} ranks, this run has {world} ranks: expected a \
             divisor, set `shard_ranks` or the number of ranks"
        ))),
    }
}

/// Where the bytes of every unit are stored. A part of one rank alone is stored whole.
pub fn of_units(settings: &Settings, shard_ranks: u32) -> Placement {
    let on_device = match shard_ranks {
        1 => Place::Replicated,
        _ => Place::Sharded,
    };
    let offloads_params = settings.offload != Offload::Nothing;
    Placement {
        frozen: match (settings.gather, offloads_params) {
            (Gather::HostDirect, _) => Place::Host,
            (Gather::Shards, true) if shard_ranks == 1 => Place::Host,
            (Gather::Shards, true) => Place::ShardedOnHost,
            (Gather::Shards, false) => on_device,
        },
        trainable: if offloads_params {
            Place::ShardedOnHost
        } else {
            on_device
        },
        optimizer: match settings.offload {
            Offload::ParamsAndOptimizer => Place::ShardedOnHost,
            Offload::Nothing | Offload::Params => on_device,
        },
    }
}

/// The parts of a unit that are copied from the host, that are gathered from the ranks, and all of
/// those.
pub struct NeededParts {
    /// Copied from the host.
    pub fetched: Vec<Part>,
    /// Gathered from the ranks, after offloaded parts were fetched.
    pub gathered: Vec<Part>,
    /// All.
    pub all: Vec<Part>,
}

impl NeededParts {
    /// The parts that a computation with a unit needs.
    pub fn of(request: &ShardingRequest, schedule: &Schedule, unit: usize) -> Self {
        let at = schedule.placements[unit];
        let alone = schedule.ranks_sharing(request) == 1;
        let weights = [(Part::Frozen, at.frozen), (Part::Trainable, at.trainable)];
        let parts = |takes: &dyn Fn(Place) -> bool| -> Vec<Part> {
            let some = |part| request.units[unit].bytes(part) > 0;
            let taken = weights
                .iter()
                .filter(|(part, place)| some(*part) && takes(*place));
            taken.map(|&(part, _)| part).collect()
        };
        NeededParts {
            fetched: parts(&|place| matches!(place, Place::Host | Place::ShardedOnHost)),
            gathered: parts(&|place| match place {
                Place::Sharded => true,
                Place::ShardedOnHost => !alone,
                Place::Replicated | Place::Host => false,
            }),
            all: parts(&|place| place != Place::Replicated),
        }
    }
}
