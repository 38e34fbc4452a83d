//! The file `run.json` -> the parts that a report uses.

use std::path::{Path, PathBuf};

use espalier_config::Config;
use espalier_data::{Counts, SplitToken};
use espalier_engine::load::DecodeCheck;
use espalier_engine::measure::Peaks;
use espalier_plan::param_groups::ParamGroup;
use espalier_plan::plan::{IdleRanks, MemoryPlan, WorldMemory};
use espalier_registry::PluginIdentity;
use espalier_system::failure::UsageError;
use espalier_system::files::{FileKind, read_regular_text};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use crate::Error;

/// Digits of a hash that are shown.
const SHOWN_DIGITS: usize = 12;

/// A run's record; fields that the file lacks are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The program's version.
    pub espalier: String,
    /// The resolved config.
    pub config: Json,
    /// The folder that relative paths are relative to; `None` for older runs.
    pub working_directory: Option<PathBuf>,
    /// The components, one per role.
    pub plugins: Vec<PluginIdentity>,
    /// The model.
    pub model: ModelRecord,
    /// The rows.
    pub data: DataRecord,
    /// The groups of trained params; empty for older runs.
    pub param_groups: Vec<ParamGroup>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Ranks.
    pub world: u64,
    /// The vector instructions that the kernels used.
    pub instruction_set: String,
    /// The machine.
    pub machine: MachineRecord,
    /// Planned bytes of a rank by category.
    pub memory: MemoryPlan,
    /// Planned bytes of ranks, processes and machines; `None` for older runs.
    pub world_memory: Option<WorldMemory>,
    /// Ranks without work.
    pub idle_ranks: Option<IdleRanks>,
    /// Whether packed weights decode to their original values: one weight per format.
    pub decode_checks: Vec<DecodeCheck>,
    /// Swaps of plugins that were made.
    pub swaps: Vec<Json>,
    /// The step whose params were written, where the held-out loss chose it.
    pub kept: Option<KeptRecord>,
    /// Where the held-out loss ended the run before its last step.
    pub ended_early: Option<EarlyEnd>,
}

/// The step whose params were written.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeptRecord {
    /// Steps before it.
    pub step: u64,
}

/// The end of a run by `run.stop_after_worse`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, serde::Serialize)]
#[serde(default)]
pub struct EarlyEnd {
    /// Completed steps.
    pub step: u64,
    /// Planned steps.
    pub planned: u64,
    /// Evaluations since the best.
    pub worse: u64,
}

/// The model that was trained.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ModelRecord {
    /// Its directory.
    pub path: PathBuf,
    /// Its files with their hashes.
    pub files: Json,
    /// All parameters.
    pub num_params: u64,
    /// Parameters that are trained.
    pub num_trained_params: u64,
}

/// The rows that it was trained on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DataRecord {
    /// Files that were trained on.
    pub files: Option<Vec<DataFile>>,
    /// Files that were held out.
    pub eval_files: Option<Vec<DataFile>>,
    /// Trained and lost rows of the training files.
    pub counts: Option<Counts>,
    /// The same for the held-out files, where these are separate files.
    pub eval_counts: Option<Counts>,
    /// Special tokens that the chat template writes and the tokenizer splits.
    pub split_tokens: Option<Vec<SplitToken>>,
    /// Steps of the whole run.
    pub total_steps: Option<u64>,
    /// Steps that see every row once.
    pub steps_per_epoch: Option<u64>,
}

/// A file of rows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DataFile {
    /// Where it was.
    pub path: PathBuf,
    /// Hash of its bytes, hexadecimal.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// Its rows.
    pub rows: u64,
    /// What its rows are.
    pub format: String,
}

/// The machine that it ran on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct MachineRecord {
    /// The device's name.
    pub device: String,
    /// The device in words.
    pub description: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Its measured matrix-product rate, operations per second.
    pub gemm_flops_per_sec: f64,
    /// The rate and all later measurements, of all ranks; empty for older runs.
    pub peak_rates: Peaks,
}

impl Record {
    /// Reads `run.json` of an output directory.
    ///
    /// # Errors
    /// [`Error::Usage`] where the file is missing or is not a run record.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        let path = directory.join("run.json");
        let refuse = |why: String| {
            Error::Usage(UsageError {
                message: format!("{}: {why}", path.display()),
                next_step: "name the output directory of a run (--out of `host train`)".to_owned(),
            })
        };
        let text = read_regular_text(&path, FileKind::Record)
            .map_err(|error| refuse(format!("cannot be read: {error}")))?;
        serde_json::from_str(&text)
            .map_err(|error| refuse(format!("is no record of a run: {error}")))
    }

    /// Hash of all inputs that determine the result, except clock and paths. Runs with equal
    /// identity write equal bytes.
    pub fn identity(&self) -> String {
        let mut config = self.config.clone();
        Config::remove_without_effect(&mut config);
        let plugins: Vec<Json> = self
            .plugins
            .iter()
            .map(|plugin| json!([plugin.component, plugin.version, plugin.sha256]))
            .collect();
        let hashes = |files: &Option<Vec<DataFile>>| -> Vec<String> {
            let files = files.iter().flatten();
            files.map(|file| file.sha256.clone()).collect()
        };
        let mut whole = json!([
            self.espalier,
            config,
            plugins,
            self.model.files,
            hashes(&self.data.files),
            hashes(&self.data.eval_files),
            self.seed,
            self.world,
            self.instruction_set,
        ]);
        if let (Some(whole), false) = (whole.as_array_mut(), self.swaps.is_empty()) {
            let swap = |swap: &Json| {
                let to = &swap["to"];
                let named = [&to["component"], &to["version"], &to["sha256"]];
                json!([swap["step"], swap["asked"], swap["changed"], named])
            };
            whole.push(self.swaps.iter().map(swap).collect());
        }
        shown_hash(&format!("{:x}", Sha256::digest(whole.to_string()))).to_owned()
    }

    /// The model's directory, found from any folder where the record says how.
    pub fn model_path(&self) -> PathBuf {
        match &self.working_directory {
            Some(folder) => folder.join(&self.model.path),
            None => self.model.path.clone(),
        }
    }

    /// The component with the role `role`.
    pub fn plugin(&self, role: &str) -> Option<&PluginIdentity> {
        self.plugins.iter().find(|plugin| plugin.role == role)
    }

    /// A value of the config by its path, such as `optim.clip_norm`.
    pub fn value(&self, key: &str) -> Option<&Json> {
        key.split('.')
            .try_fold(&self.config, |table, key| table.get(key))
    }
}

/// The beginning of a hash.
pub fn shown_hash(sha256: &str) -> &str {
    sha256.get(..SHOWN_DIGITS).unwrap_or(sha256)
}
