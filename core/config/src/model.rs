//! `[model]`: which weights are trained and in which number types.

use std::path::PathBuf;

use espalier_compile::recompute::Recompute;
use serde::{Deserialize, Serialize};

/// The keys of `[model]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelOptions {
    /// Model directory as Hugging Face lays it out (`--model`).
    pub path: Option<PathBuf>,
    /// Where the weights come from.
    pub init: Init,
    /// PEFT adapter directory to start from (`--adapter`).
    pub adapter: Option<PathBuf>,
    /// Number type of activations and matrix products; sums are f32 in any case.
    pub compute: ComputeType,
    /// Number type that trainable parameters are kept in.
    pub params: ParamType,
    /// Number type in which the gradients of trainable parameters are added up and reduced; `bf16`
    /// needs `compute = "bf16"`.
    pub gradients: ParamType,
    /// Patterns of the weights that are trained without an adapter, the others are frozen and may
    /// be packed; `expanded` stands for the layers that `host expand` added. Empty: all weights.
    pub train_only: Vec<String>,
    /// Patterns of frozen dense weights that stay f32 where `compute` is narrower. Packed weights
    /// are kept dense by `[[sites]]`, trained ones are as `params` says.
    pub keep_f32: Vec<String>,
    /// Which activations are computed again in the backward pass instead of kept. With `none`: the
    /// outputs of gates, where the layers' own weights are trained.
    pub recompute: Recompute,
}

impl ModelOptions {
    /// Keys that may differ where a run is resumed: they change no result. Files are compared by
    /// their content.
    pub const RESUMABLE: [&str; 3] = ["path", "adapter", "recompute"];
    /// Keys that may differ between the processes of a run.
    pub const LOCAL: [&str; 2] = ["path", "adapter"];
}

/// Where the weights come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Init {
    /// From the checkpoint in `model.path`.
    #[default]
    Checkpoint,
    /// Drawn at random; `model.path` then needs a `config.json` and a tokenizer only.
    Random,
}

/// Number type of activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComputeType {
    /// bfloat16 values, f32 sums.
    #[default]
    Bf16,
    /// f32 throughout.
    F32,
    /// The cpu backend's reference mode.
    F64,
}

/// Number type of what is kept of each trainable parameter: itself, its gradient, its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParamType {
    /// f32.
    #[default]
    F32,
    /// bfloat16.
    Bf16,
}
