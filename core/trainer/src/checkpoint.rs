//! A run between two steps <-> the directory `checkpoints/step-N`, written atomically.
//!
//! Random numbers and batches are functions of the seed and the step number, so a checkpoint holds
//! no state of either. Trained params, the optimizer's state and the step are enough.

mod comparison;
mod difference;
mod directory;
mod earlier_values;
mod error;
mod extension;
mod horizon;
mod manifest;
mod piece;
mod restore;
mod save;
mod seal;
mod verify;

pub(crate) use comparison::{
    config_differences, differences, hashes as file_hashes, plugin_differences,
    plugins as plugin_leaves, stated_differences,
};
pub use difference::{Difference, leaves, tree_differences};
pub use directory::{Checkpoint, Checkpoints, ResumeFrom};
pub(crate) use earlier_values::completed_config;
pub use earlier_values::{CONFIG_VERSION, as_begun, config_version, earlier_values};
pub use error::{CheckpointError, Trained};
pub(crate) use extension::{Extension, changed, consequence};
pub use manifest::{Best, Manifest, Position, Progress};
pub use restore::restore;
pub use save::{AdapterParts, Snapshot, save};

/// The file that describes a checkpoint.
const MANIFEST: &str = "checkpoint.json";
/// Trained params by name, in their own dtype. Where ranks keep parts of them, each rank writes its
/// own file.
const PARAMS: &str = "params.safetensors";
/// The optimizer's state by name of the param and of the tensor; also one file per rank where ranks
/// keep parts. There is none where the optimizer keeps nothing.
const OPTIMIZER: &str = "optimizer.safetensors";
/// A copy of the run's `metrics.jsonl`.
const METRICS: &str = "metrics.jsonl";
