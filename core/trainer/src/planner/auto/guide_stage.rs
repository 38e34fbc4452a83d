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
pub enum GuideStage {
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

impl GuideStage {
    /// All, in order.
    pub const ALL: [GuideStage; 6] = [
        GuideStage::Replicate,
        GuideStage::Recompute,
        GuideStage::ShardGradOp,
        GuideStage::FullShard,
        GuideStage::Offload,
        GuideStage::OffloadActivations,
    ];

    /// The step of a choice.
    pub fn of(choice: &Choice) -> Self {
        match choice.stage {
            MemoryStage::Replicate if choice.recompute == Recompute::None => GuideStage::Replicate,
            MemoryStage::Replicate => GuideStage::Recompute,
            MemoryStage::ShardState => GuideStage::ShardGradOp,
            MemoryStage::ShardWeights => GuideStage::FullShard,
            MemoryStage::OffloadWeights => GuideStage::Offload,
            MemoryStage::OffloadActivations => GuideStage::OffloadActivations,
        }
    }

    /// The step in words.
    pub fn words(self) -> &'static str {
        match self {
            GuideStage::Replicate => "a copy on every rank",
            GuideStage::Recompute => "recompute activations",
            GuideStage::ShardGradOp => "shard gradients and state",
            GuideStage::FullShard => "shard weights, too",
            GuideStage::Offload => "offload to the host",
            GuideStage::OffloadActivations => "offload activations",
        }
    }
}
