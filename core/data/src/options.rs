//! The `[data]` section of the config: what to read, how to cut it, in which order.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::DataError;
use super::fields;
use super::format::Format;

/// This file, whose doc comments are the reference of its keys.
pub const OPTIONS_SOURCE: &str = include_str!("options.rs");

/// The keys of `[data]`, with their defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataOptions {
    /// Training files, read in this order.
    pub files: Vec<PathBuf>,
    /// Files of the evaluation rows; excludes `eval_split`.
    pub eval_files: Vec<PathBuf>,
    /// Part of the training rows held out for evaluation: a fraction below 1, or a number of rows.
    /// The rows are drawn by `split_seed`.
    pub eval_split: Option<f64>,
    /// Seed of that draw; unset: the run's. Runs of several seeds that set it hold out the same
    /// rows.
    pub split_seed: Option<u64>,
    /// Files of the rows on which quantizers that want statistics are calibrated; unset: the
    /// training rows. Their format is detected.
    pub calibration_files: Vec<PathBuf>,
    /// Most rows to calibrate on. They are taken at equal distances, in the order of the files.
    pub calibration_rows: usize,
    /// What a row's fields mean; `auto` detects it from the first row of each file.
    pub format: Format,
    /// Renamed fields: the format's own name -> the name in the files.
    pub fields: BTreeMap<String, String>,
    /// Longest sequence in tokens, the end token included.
    pub max_seq_len: usize,
    /// What happens to a longer row. Where it is set, the loss is reported and does not refuse the
    /// run.
    pub too_long: TooLong,
    /// The largest share of the trained tokens that may be lost to cut rows and rows left out, from
    /// 0 to 1. A larger loss refuses the run.
    pub max_lost: f64,
    /// Sequences per optimizer step, over all ranks and micro-batches.
    pub batch_size: usize,
    /// Sequences of a micro-batch; without effect where `pack_tokens` is set.
    pub micro_batch: usize,
    /// Fill a micro-batch with whole sequences up to this many tokens.
    pub pack_tokens: Option<usize>,
    /// Which tokens are trained. A `text` row is all completion. For a pre-tokenized row its
    /// `labels` decide.
    pub train_on: TrainOn,
    /// Name or file of the chat template; unset: the tokenizer's, for rows with turns. Where it is
    /// set (`tokenizer`: the tokenizer's own), rows of alpaca and of prompts and completions in
    /// plain text become turns too. Otherwise they stay text, one after the other.
    pub chat_template: Option<String>,
    /// What happens to a row that cannot be read.
    pub on_bad_row: OnBadRow,
    /// How a row with an empty answer or text is treated.
    pub on_empty: OnEmpty,
    /// How a conversation's tools are treated: the `tools` column, tool calls and their answers.
    pub tools: Tools,
    /// Directory of the temporary file for tokens that exceed memory; unset: `TMPDIR`, else
    /// `/var/tmp`.
    pub cache_dir: Option<PathBuf>,
    /// Draw a new order of rows each epoch from the run's seed; otherwise file order.
    pub shuffle: bool,
}

/// What happens to a row of more than `max_seq_len` tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TooLong {
    /// Its first `max_seq_len` tokens stay; the end token goes with the rest.
    #[default]
    Truncate,
    /// The row is left out and counted.
    Drop,
    /// The run is refused.
    Error,
}

/// What happens to a row that cannot be read: broken JSON, a wrong field, an unknown role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBadRow {
    /// The run is refused.
    #[default]
    Error,
    /// The row is left out and counted. Where more than half of the rows are bad, the run is
    /// refused.
    Drop,
}

/// How a row with an empty answer or text is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnEmpty {
    /// As a bad row; see `on_bad_row`.
    #[default]
    Bad,
    /// As any other row, which trains its end token.
    Train,
}

/// How a conversation's tools are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tools {
    /// The chat template receives them. Where it does not write them, the row is bad.
    #[default]
    Write,
    /// The column is not read, and calls that the template does not write are ignored.
    Ignore,
}

/// Which tokens of a row are trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrainOn {
    /// Every answer of a conversation, the completion of other rows.
    #[default]
    Auto,
    /// The answer, not the prompt: of a conversation the last one.
    Completion,
    /// Every turn of the assistant; needs rows with turns.
    Assistant,
    /// Every token.
    All,
}

impl TrainOn {
    /// The choice for rows of `format`; never [`TrainOn::Auto`].
    pub fn of(self, format: Format) -> Self {
        match (self, format) {
            (TrainOn::Auto, Format::Chat) => TrainOn::Assistant,
            (TrainOn::Auto, _) => TrainOn::Completion,
            (chosen, _) => chosen,
        }
    }
}

impl DataOptions {
    /// Keys that may differ where a run is resumed: they change no result. Files are compared by
    /// their content.
    pub const RESUMABLE: [&str; 5] = [
        "files",
        "eval_files",
        "calibration_files",
        "cache_dir",
        "max_lost",
    ];
    /// Keys that may differ between the processes of a run.
    pub const LOCAL: [&str; 4] = ["files", "eval_files", "calibration_files", "cache_dir"];
}

impl Default for DataOptions {
    fn default() -> Self {
        DataOptions {
            files: Vec::new(),
            eval_files: Vec::new(),
            eval_split: None,
            split_seed: None,
            calibration_files: Vec::new(),
            calibration_rows: 128,
            format: Format::Auto,
            fields: BTreeMap::new(),
            max_seq_len: 2048,
            too_long: TooLong::default(),
            max_lost: 0.1,
            batch_size: 8,
            micro_batch: 1,
            pack_tokens: None,
            train_on: TrainOn::default(),
            chat_template: None,
            on_bad_row: OnBadRow::default(),
            on_empty: OnEmpty::default(),
            tools: Tools::default(),
            cache_dir: None,
            shuffle: true,
        }
    }
}

impl DataOptions {
    /// The directory of tokens that exceed memory.
    pub fn cache_directory(&self) -> PathBuf {
        let chosen = self.cache_dir.clone();
        let named = || std::env::var_os("TMPDIR").map(PathBuf::from);
        // `/tmp` is often in memory.
        let disk = || Some(PathBuf::from("/var/tmp")).filter(|path| path.is_dir());
        chosen
            .or_else(named)
            .or_else(disk)
            .unwrap_or_else(std::env::temp_dir)
    }

    /// Refuses values that are never valid; reads no file.
    ///
    /// # Errors
    /// [`DataError::Option`] or [`DataError::UnknownField`] for the first unusable key.
    pub fn validate(&self) -> Result<(), DataError> {
        let at_least = |key, found: usize, least: usize| {
            if found < least {
                return Err(DataError::option(key, format!("at least {least}"), found));
            }
            Ok(())
        };
        at_least("max_seq_len", self.max_seq_len, 2)?; // a single token has nothing to predict
        at_least("batch_size", self.batch_size, 1)?;
        at_least("calibration_rows", self.calibration_rows, 1)?;
        at_least("micro_batch", self.micro_batch, 1)?;
        at_least("pack_tokens", self.pack_tokens.unwrap_or(2), 2)?;
        for (key, found) in [
            ("max_seq_len", self.max_seq_len),
            ("batch_size", self.batch_size),
            ("pack_tokens", self.pack_tokens.unwrap_or(0)),
        ] {
            if found > i32::MAX as usize {
                return Err(DataError::option(key, "at most 2147483647", found));
            }
        }
        if !(0.0..=1.0).contains(&self.max_lost) {
            let expected = "a share, 0 to 1";
            return Err(DataError::option("max_lost", expected, self.max_lost));
        }
        if let Some(split) = self.eval_split {
            let whole_rows = split >= 1.0 && split.fract() == 0.0 && split <= f64::from(u32::MAX);
            if !(whole_rows || split > 0.0 && split < 1.0) {
                let expected = "a fraction between 0 and 1, or a whole number of rows";
                return Err(DataError::option("eval_split", expected, split));
            }
            if !self.eval_files.is_empty() {
                let expected = "unset where eval_files is set";
                return Err(DataError::option("eval_split", expected, split));
            }
        }
        fields::check_renames(&self.fields)
    }
}

#[cfg(test)]
mod tests;
