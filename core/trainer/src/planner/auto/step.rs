//! A choice -> its step in the published guide for manual tuning.
//!
//! # Source
//! Answer.AI, "You can now train a 70b language model at home", 2024: a copy on every device, then
//! gradient checkpointing, sharded gradients, full sharding, offload, offload of activations; each
//! where the one before does not fit.

use espalier_compile::recompute::Recompute;
use espalier_interface::search::MemoryStage;
use serde::Serialize;

use super::choice::Choice;

/// A step of the guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Every rank holds everything.
    Replicate,
    /// Every rank holds everything, and recomputes activations.
    Recompute,
    /// Gradients and optimizer state are sharded; weights stay gathered during a step.
    ShardGradOp,
    /// Weights are sharded, too.
    FullShard,
    /// Sharded weights are kept in host memory.
    Offload,
    /// Activations are kept in host memory, too.
    OffloadActivations,
}

impl Step {
    /// All, in order.
    pub const ALL: [Step; 6] = [
        Step::Replicate,
        Step::Recompute,
        Step::ShardGradOp,
        Step::FullShard,
        Step::Offload,
        Step::OffloadActivations,
    ];

    /// The step of a choice.
    pub fn of(choice: &Choice) -> Self {
        match choice.stage {
            MemoryStage::Replicate if choice.recompute == Recompute::None => Step::Replicate,
            MemoryStage::Replicate => Step::Recompute,
            MemoryStage::ShardState => Step::ShardGradOp,
            MemoryStage::ShardWeights => Step::FullShard,
            MemoryStage::OffloadWeights => Step::Offload,
            MemoryStage::OffloadActivations => Step::OffloadActivations,
        }
    }

    /// The step in words.
    pub fn words(self) -> &'static str {
        match self {
            Step::Replicate => "a copy on every rank",
            Step::Recompute => "recompute activations",
            Step::ShardGradOp => "shard gradients and state",
            Step::FullShard => "shard weights, too",
            Step::Offload => "offload to the host",
            Step::OffloadActivations => "offload activations",
        }
    }
}
