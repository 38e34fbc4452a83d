//! A step as data: what a sharding strategy decides and the core validates and executes.

mod form;
mod micro_batch;
mod passes;
mod validate;
mod walk;

use serde::{Deserialize, Serialize};

use crate::DType;

pub use micro_batch::MicroBatch;
pub use passes::Pass;

/// The sizes of a unit that a strategy places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitBytes {
    /// Name of the unit.
    pub name: String,
    /// Frozen bytes: packed segments and dense weights. Gathered, never reduced.
    pub frozen: u64,
    /// Bytes of trainable params.
    pub trainable: u64,
    /// Bytes of their gradients.
    pub gradients: u64,
    /// Bytes of their optimizer state.
    pub optimizer: u64,
    /// Bytes that its forward pass saves for its backward pass, at the largest micro-batch.
    #[serde(default)]
    pub saved: u64,
    /// Units whose params its forward pass reads; itself, if it has any, and those it shares params with. The head's forward
    /// pass is also its backward pass.
    #[serde(default)]
    pub forward_reads: Vec<usize>,
    /// Units whose params its backward pass reads or has gradients for.
    #[serde(default)]
    pub backward_reads: Vec<usize>,
}

/// What a strategy is asked to place. All ranks ask the same and must be given the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardingRequest {
    /// Units in the order of the forward pass.
    pub units: Vec<UnitBytes>,
    /// Ranks all told.
    pub world: u32,
    /// Ranks on each machine.
    pub ranks_per_machine: u32,
    /// Most micro-batches that a rank has in a step; 0 where that is not known.
    #[serde(default)]
    pub micro_batches: u32,
    /// Bytes a device has for the run, where known.
    pub device_bytes: Option<u64>,
    /// Bytes a machine has for the run, where known.
    pub host_bytes: Option<u64>,
}

/// Where bytes of a unit lie between steps.
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

/// Where the bytes of a unit lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Frozen bytes.
    pub frozen: Place,
    /// Trainable params.
    pub trainable: Place,
    /// Gradients, once they are reduced, and optimizer state. Cut exactly where trainable params are.
    pub optimizer: Place,
}

/// What an action does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Copy a unit's bytes from the host to the device: all of them from the machine's copy (`Host`), a rank's own part of
    /// what is cut (`ShardedOnHost`), or saved activations.
    Fetch,
    /// Put weights that are cut together from the ranks of the group.
    Gather,
    /// Run a unit forward. For the head: forward and backward, in chunks.
    Forward,
    /// Run a unit backward, recomputing what was not saved.
    Backward,
    /// Give back the device's memory of what `Fetch` or `Gather` brought.
    Release,
    /// Sum a unit's gradients over the ranks: each keeps its part, or all of the sum where params are replicated. Once a step
    /// for each trained unit, in the last micro-batch; one rank that keeps its gradients on the device needs none.
    Reduce,
    /// Add up the squares of a unit's reduced gradients, for the global norm. Once a step for each unit that is reduced; where
    /// none is, all or none.
    Norm,
    /// Copy from the device to the host and give the device's memory back: reduced gradients after `Reduce` and `Norm`, params
    /// and moments after `Optimize`, or saved activations.
    Offload,
    /// Update a unit's trainable params, after the global norm is known.
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
    /// Their reduced gradients.
    Gradients,
    /// Their optimizer state.
    Optimizer,
    /// Activations that the forward pass saves for the backward pass.
    Saved,
}

/// In which micro-batches of a step an action takes place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// In each.
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
    /// What it does.
    pub act: Act,
    /// Index of the unit.
    pub unit: usize,
    /// What of the unit a `Fetch`, `Gather`, `Release` or `Offload` moves; other acts name nothing.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// In which micro-batches.
    pub when: When,
    /// Stream it is put on: 0 computes, others move bytes.
    pub stream: u32,
    /// Earlier actions of the same list that must have finished. Actions of one stream follow each other anyway, and the
    /// core adds what follows from the bytes themselves: nothing is read before it is there or overwritten while it is read.
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

    /// The same, in these micro-batches only.
    pub fn when(self, when: When) -> Self {
        Action { when, ..self }
    }

    /// The same, on this stream.
    pub fn on(self, stream: u32) -> Self {
        Action { stream, ..self }
    }
}

/// The order of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// For each unit, where its bytes lie between steps.
    pub placements: Vec<Placement>,
    /// Ranks that share what is cut: groups of this many ranks, one after the other, each hold everything once. 0: all ranks.
    #[serde(default)]
    pub shard_ranks: u32,
    /// The dtype in which gradients travel; unset: their own.
    #[serde(default)]
    pub reduce_dtype: Option<DType>,
    /// What happens for each micro-batch.
    pub micro_batch: Vec<Action>,
    /// What happens once, after the last micro-batch, when the global norm is known.
    pub update: Vec<Action>,
}
