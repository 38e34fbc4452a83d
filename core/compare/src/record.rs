//! The files of a comparison on disk. Its report is computed from these files alone.
//!
//! ```text
//! OUT/compare.json                            Comparison
//! OUT/arms/NAME/base.json                     Base: the part that does not depend on a seed
//! OUT/arms/NAME/seed-S/                       the output directory of a run, as `host train` leaves it
//! OUT/arms/NAME/seed-S/held_out/step-N.json   HeldOut: each document's loss after N steps
//! ```

use std::path::{Path, PathBuf};

use espalier_registry::PluginIdentity;
use espalier_trainer::train::HeldOut;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// The compared arms and their outcomes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Comparison {
    /// The program's version.
    pub espalier: String,
    /// Version of the config at its start.
    pub config_version: u64,
    /// The arms in the order in which they were given, the dense baseline first.
    pub arms: Vec<Arm>,
    /// Name of the arm whose base is dense, where there is one.
    #[serde(rename = "yardstick")]
    pub dense_baseline: Option<String>,
    /// The seeds of each arm's runs.
    pub seeds: Vec<u64>,
    /// `interleaved` or `sequential`.
    pub schedule: String,
    /// Whether nothing was trained.
    pub eval_only: bool,
}

/// A compared arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Arm {
    /// Its name, also of its folder.
    pub name: String,
    /// Its components, one per role.
    pub plugins: Vec<PluginIdentity>,
    /// Its changes to the shared config.
    pub changes: Map<String, Json>,
    /// Name of the arm whose memory its bits were chosen for, where they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_memory_as: Option<String>,
    /// The command line that trains it alone, without `--out` and `run.seed`.
    pub command: String,
    /// Runs that ended in an error.
    pub failures: Vec<Failure>,
}

/// A run that ended in an error, or an arm that did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// The run's seed; `None` where the arm failed before its first run started.
    pub seed: Option<u64>,
    /// The last completed step.
    pub step: u64,
    /// The error message.
    pub message: String,
}

/// The part of an arm that does not depend on a seed: its frozen base, before training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Base {
    /// Vocabulary size; 0 in older records without it.
    pub vocab: u64,
    /// Elements of the weights that the arm's quantizers pack; 0 for a dense arm.
    pub packed_weights: u64,
    /// Bytes of those weights, including scales.
    pub packed_bytes: u64,
    /// Elements of all frozen weights.
    pub frozen_weights: u64,
    /// Bytes of all frozen weights.
    pub frozen_bytes: u64,
    /// Weights that were encoded, calibrated ones in this run or in the one that cached them; 0
    /// where the files hold them packed.
    pub encoded: u64,
    /// Seconds of encoding on all threads.
    pub encode_secs: f64,
    /// The error of each encoded weight.
    pub weights: Vec<WeightError>,
    /// Divergence of the base's predictions from the dense base's; `None` without a dense baseline,
    /// and for the dense baseline itself.
    pub divergence: Option<Divergence>,
    /// Each held-out document's loss before training, without an adapter.
    pub held_out: Option<HeldOut>,
}

/// The encoding error of a weight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WeightError {
    /// The param's name.
    pub name: String,
    /// Number of the layer, counted from 0; `None` outside the layers.
    pub layer: Option<u64>,
    /// The kind of projection: the module's own name, such as `q_proj`.
    pub kind: String,
    /// The quantizer.
    pub quantizer: String,
    /// Elements.
    pub elements: u64,
    /// Bytes packed.
    pub bytes: u64,
    /// Sum of `(decoded - dense)^2`.
    pub squared_error: f64,
    /// Sum of `dense^2`.
    pub squared_norm: f64,
    /// The largest `|decoded - dense|`.
    pub largest_error: f64,
}

/// Divergence of predictions from those of the dense base, over tokens of held-out documents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Divergence {
    /// Tokens that it was measured on.
    pub tokens: u64,
    /// Mean of `KL(dense || arm)`, in nats.
    pub mean: f64,
    /// Its median over tokens.
    pub median: f64,
    /// Its 99th percentile.
    pub p99: f64,
    /// Its largest value.
    pub largest: f64,
    /// Share of tokens for which both rank the same prediction first.
    pub same_top: f64,
    /// Each held-out document, in the order of the files; empty in older records.
    pub documents: Vec<DocumentDivergence>,
}

/// Divergence of the predictions of a held-out document from those of the dense base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DocumentDivergence {
    /// Sum of `KL(dense || arm)` over its measured tokens, in nats.
    pub sum: f64,
    /// Tokens that it was measured on.
    pub tokens: u64,
}

/// The folder of an arm in the output directory `out`.
pub fn arm_directory(out: &Path, arm: &str) -> PathBuf {
    out.join("arms").join(arm)
}

/// The file of an arm's [`Base`].
pub fn base_file(out: &Path, arm: &str) -> PathBuf {
    arm_directory(out, arm).join("base.json")
}

/// The output directory of an arm's run.
pub fn run_directory(out: &Path, arm: &str, seed: u64) -> PathBuf {
    arm_directory(out, arm).join(format!("seed-{seed}"))
}

impl WeightError {
    /// Squared error by squared norm: 0 is exact, also for zeros; 1 is the error of decoding all
    /// zeros.
    pub fn relative(&self) -> f64 {
        if self.squared_error == 0.0 {
            0.0
        } else {
            self.squared_error / self.squared_norm
        }
    }
}
