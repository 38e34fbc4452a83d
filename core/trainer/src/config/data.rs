//! `[data]`: which rows are trained on and how they are cut into batches.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The keys of `[data]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataOptions {
    /// Training files, in order (`--data`).
    pub files: Vec<PathBuf>,
    /// Files of the held-out rows.
    pub eval_files: Vec<PathBuf>,
    /// Part of the training rows that is held out: a fraction below 1, or a number of rows; not
    /// together with `eval_files`.
    pub eval_split: Option<f64>,
    /// Format of the rows; `auto` tells it from their fields.
    pub format: String,
    /// Renamed fields: the format's name = the file's name.
    pub fields: BTreeMap<String, String>,
    /// Longest sequence in tokens.
    pub max_seq_len: usize,
    /// What becomes of a longer one.
    pub too_long: TooLong,
    /// Sequences per optimizer step, over all ranks.
    pub batch_size: usize,
    /// Sequences at once on a rank.
    pub micro_batch: usize,
    /// Fill a micro-batch with whole sequences up to this many tokens.
    pub pack_tokens: Option<usize>,
    /// Which tokens bear loss.
    pub train_on: TrainOn,
    /// A chat template's name or file; unset: the tokenizer's own.
    pub chat_template: Option<String>,
    /// Whether each epoch has its own random order of rows.
    pub shuffle: bool,
}

impl Default for DataOptions {
    fn default() -> Self {
        DataOptions {
            files: Vec::new(),
            eval_files: Vec::new(),
            eval_split: None,
            format: "auto".into(),
            fields: BTreeMap::new(),
            max_seq_len: 2048,
            too_long: TooLong::Truncate,
            batch_size: 8,
            micro_batch: 1,
            pack_tokens: None,
            train_on: TrainOn::Completion,
            chat_template: None,
            shuffle: true,
        }
    }
}

/// What becomes of a sequence longer than `max_seq_len`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TooLong {
    /// Its end is cut off.
    #[default]
    Truncate,
    /// It is left out.
    Drop,
    /// The run is refused.
    Error,
}

/// Which tokens bear loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrainOn {
    /// The last answer.
    #[default]
    Completion,
    /// Every turn of the assistant.
    Assistant,
    /// Every token.
    All,
}
