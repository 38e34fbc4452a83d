//! A training step as data: a sharding strategy decides it, and the core validates and executes it.

mod form;
mod micro_batch;
mod passes;
mod validate;
mod walk;

use serde::{Deserialize, Serialize};

use crate::DType;

pub use micro_batch::MicroBatch;
pub use passes::Pass;

/// The sizes of a unit, which a strategy places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitBytes {
    /// Name of the unit.
    pub name: String,
    /// Frozen bytes: packed segments and dense weights. Gathered, never reduced.
    pub frozen: u64,
    /// Bytes of trainable params.
    pub trainable: u64,
    /// Bytes of the gradients of trainable params.
    pub gradients: u64,
    /// Bytes of the optimizer state of trainable params.
    pub optimizer: u64,
    /// Bytes that its forward pass saves for its backward pass, at the largest micro-batch.
    #[serde(default)]
    pub saved: u64,
    /// Units whose params its forward pass reads: itself, if it has any, and those it shares params
    /// with. The head's forward pass includes its backward pass.
    #[serde(default)]
    pub forward_reads: Vec<usize>,
    /// Units whose params its backward pass reads or computes gradients for.
    #[serde(default)]
    pub backward_reads: Vec<usize>,
}

/// The request to a strategy. All ranks make the same request and must get the same schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardingRequest {
    /// Units in the order of the forward pass.
    pub units: Vec<UnitBytes>,
    /// Number of all ranks.
    pub world: u32,
    /// Ranks on each machine.
    pub ranks_per_machine: u32,
    /// Most micro-batches of a rank in a step; 0 where that is not known.
    #[serde(default)]
    pub micro_batches: u32,
    /// Whether the run updates within the backward pass: then `Optimize` belongs into the
    /// micro-batch, once a unit's gradients are whole, and they are released behind it. No factor
    /// of a global norm is known there. A strategy that leaves all updates to `Schedule::update` is
    /// refused by the host.
    #[serde(default)]
    pub update_in_backward: bool,
    /// Bytes of a device that the run may use, where known.
    pub device_bytes: Option<u64>,
    /// Bytes of a machine's memory that the run may use, where known.
    pub host_bytes: Option<u64>,
}

/// Where bytes of a unit are kept between steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Whole on every rank's device.
    #[default]
    Replicated,
    /// Cut evenly by bytes over the devices of a group of ranks.
    Sharded,
    /// Whole in the machine's one host copy. Frozen bytes only.
    Host,
    /// Cut as `Sharded`, each rank's part in host memory.
    ShardedOnHost,
}

/// Where the bytes of a unit are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Frozen bytes.
    pub frozen: Place,
    /// Trainable params.
    pub trainable: Place,
    /// Reduced gradients and optimizer state. Cut exactly where trainable params are cut.
    pub optimizer: Place,
}

/// What an action does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Copy a unit's bytes from the host to the device. They are all of the machine's copy
    /// (`Host`), a rank's own part of a cut unit (`ShardedOnHost`), or saved activations. Where the
    /// run updates in the backward pass: behind `Reduce` or `Norm` of a unit its params and
    /// optimizer state, for `Optimize` alone, once `Release` has freed those that passes read.
    Fetch,
    /// Assemble sharded weights from the ranks of the group.
    Gather,
    /// Run a unit forward. For the head: forward and backward, in chunks.
    Forward,
    /// Run a unit backward, recomputing what was not saved.
    Backward,
    /// Free the device memory that `Fetch` or `Gather` filled. Where the run updates in the
    /// backward pass: free a unit's gradients behind its `Optimize`.
    Release,
    /// Sum a unit's gradients over the ranks: each keeps its part, or all of the sum where params
    /// are replicated. It occurs once per step for each trained unit, in the last sweep. One
    /// rank that keeps its gradients on the device needs none.
    Reduce,
    /// Add the squares of a unit's reduced gradients to the global norm. It occurs once per step
    /// for each unit that is reduced. Where none is reduced, it occurs for all units or for none.
    /// Where the run updates in the backward pass, it occurs for all, before `Optimize`.
    Norm,
    /// Copy from the device to the host and free the device memory: reduced gradients after
    /// `Reduce` and `Norm`, params and moments after `Optimize`, or saved activations. Gradients
    /// stay on the device where the run updates in the backward pass.
    Offload,
    /// Update a unit's trainable params, after the global norm is known. Where the run updates in
    /// the backward pass: in the last micro-batch, after `Norm` of the unit and before its
    /// gradients are released.
    Optimize,
}

/// Bytes of a unit that an action moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Frozen params.
    Frozen,
    /// Trainable params.
    Trainable,
    /// Reduced gradients of the trainable params.
    Gradients,
    /// Optimizer state of the trainable params. Where the optimizer keeps none, actions may name it
    /// or leave it out.
    Optimizer,
    /// Activations that the forward pass saves for the backward pass.
    Saved,
}

/// The sweeps of a step in which an action takes place: see [`Schedule::micro_batch`]. A sweep is
/// of one micro-batch, or of several where the schedule says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// In every micro-batch.
    #[default]
    Every,
    /// In the first only.
    First,
    /// In the last only.
    Last,
}

/// One action on one unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The kind of action.
    pub act: Act,
    /// Index of the unit.
    pub unit: usize,
    /// The parts that a `Fetch`, `Gather`, `Release` or `Offload` moves; empty for other acts.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// The micro-batches in which it takes place.
    pub when: When,
    /// Stream that it is put on: 0 computes, others move bytes.
    pub stream: u32,
    /// Earlier actions of the same list that must have finished. Actions of one stream run in order
    /// anyway. The core adds what follows from the bytes themselves: nothing is read before it is
    /// written, or overwritten while it is read.
    #[serde(default)]
    pub after: Vec<usize>,
}

impl Action {
    /// An action of every micro-batch on the compute stream.
    pub fn new(act: Act, unit: usize) -> Self {
        Action {
            act,
            unit,
            parts: Vec::new(),
            when: When::Every,
            stream: 0,
            after: Vec::new(),
        }
    }

    /// An action that moves `parts` of a unit.
    pub fn moving(act: Act, unit: usize, parts: &[Part]) -> Self {
        Action {
            parts: parts.to_vec(),
            ..Action::new(act, unit)
        }
    }

    /// The same action, only in these micro-batches.
    pub fn when(self, when: When) -> Self {
        Action { when, ..self }
    }

    /// The same action on this stream.
    pub fn on(self, stream: u32) -> Self {
        Action { stream, ..self }
    }
}

/// The actions of a step, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// For each unit, where its bytes are kept between steps.
    pub placements: Vec<Placement>,
    /// Ranks that share sharded bytes: consecutive groups of this many ranks each hold everything
    /// once. 0 stands for all ranks.
    #[serde(default)]
    pub shard_ranks: u32,
    /// The dtype in which gradients are sent; unset for their own dtype.
    #[serde(default)]
    pub reduce_dtype: Option<DType>,
    /// The actions of each sweep over the units. A sweep is of one micro-batch, unless
    /// `micro_batches_per_fetch` says more.
    pub micro_batch: Vec<Action>,
    /// Most micro-batches of a sweep; 0 as 1. `Forward` and `Backward` run all of them in turn
    /// before the next action, so that what was fetched and gathered for a pass is held for them.
    /// What each saves is kept from its forward to its backward pass, and moved together. The last
    /// sweep of a step may have fewer.
    #[serde(default)]
    pub micro_batches_per_fetch: u32,
    /// The actions after the last micro-batch, once the global norm is known. No `Optimize` where
    /// the run updates in the backward pass.
    pub update: Vec<Action>,
}
