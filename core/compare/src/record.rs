//! What a comparison leaves on disk, and where. Everything that is said of it follows from these
//! files.
//!
//! ```text
//! OUT/compare.json                            Comparison
//! OUT/arms/NAME/base.json                     Base: what does not depend on a seed
//! OUT/arms/NAME/seed-S/                       the output directory of a run, as `host train` leaves it
//! OUT/arms/NAME/seed-S/held_out/step-N.json   HeldOut: each document's loss after N steps
//! ```

use std::path::{Path, PathBuf};

use espalier_registry::PluginIdentity;
use espalier_trainer::train::HeldOut;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// What was compared, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Comparison {
    /// The program's version.
    pub espalier: String,
    /// Version of the config under which it began.
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

/// One of the things compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Arm {
    /// Its name; also of its folder.
    pub name: String,
    /// Its components, one a role.
    pub plugins: Vec<PluginIdentity>,
    /// What it lays over the config that all arms share.
    pub changes: Map<String, Json>,
    /// The command line that trains it alone, without `--out` and `run.seed`.
    pub command: String,
    /// Runs that ended in an error.
    pub failures: Vec<Failure>,
}

/// A run that ended in an error, or an arm that did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// The run's seed; nothing where the arm failed before any of its runs began.
    pub seed: Option<u64>,
    /// The last step that was done.
    pub step: u64,
    /// Why, as the program says it.
    pub message: String,
}

/// What of an arm does not depend on a seed: its frozen base, before any training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Base {
    /// Tokens among which it predicts; 0 in records that do not tell.
    pub vocab: u64,
    /// Elements of the weights that the arm's quantizers pack; 0 for a dense arm.
    pub packed_weights: u64,
    /// Bytes of those weights, scales and all.
    pub packed_bytes: u64,
    /// Elements of all frozen weights.
    pub frozen_weights: u64,
    /// Bytes of all frozen weights.
    pub frozen_bytes: u64,
    /// Weights that were encoded; 0 where the files hold them packed.
    pub encoded: u64,
    /// Seconds that encoding took, all threads at work.
    pub encode_secs: f64,
    /// The error of each encoded weight.
    pub weights: Vec<WeightError>,
    /// How far the base's predictions are from the dense base's; nothing without a dense baseline,
    /// and of the dense baseline itself.
    pub divergence: Option<Divergence>,
    /// Each held-out document's loss before training, without an adapter.
    pub held_out: Option<HeldOut>,
}

/// What encoding did to a weight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WeightError {
    /// The param's name.
    pub name: String,
    /// Number of the layer, counted from 0; nothing outside the layers.
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

/// How far predictions are from those of the dense base, over tokens of held-out documents.
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
    /// Each held-out document, in the order of the files; none in records that do not tell.
    pub documents: Vec<DocumentDivergence>,
}

/// How far the predictions of a held-out document are from those of the dense base.
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
    /// Squared error by squared norm: 0 is exact, that of zeros too, 1 as bad as zeros.
    pub fn relative(&self) -> f64 {
        if self.squared_error == 0.0 {
            0.0
        } else {
            self.squared_error / self.squared_norm
        }
    }
}
