//! The kind of a file -> its name in messages, and its size limit.

use std::fmt;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// TOML of `--config`.
    RunConfig,
    /// `config.json`, `tokenizer_config.json`, `adapter_config.json` and the like.
    JsonConfig,
    /// `tokenizer.json`.
    Tokenizer,
    /// A Jinja template.
    ChatTemplate,
    /// `model.safetensors.index.json`.
    TensorIndex,
    /// A safetensors file, read by position.
    Tensors,
    /// Rows to train on or to evaluate, one held at a time.
    Rows,
    /// Prompts to answer.
    Prompts,
    /// A plugin's library.
    Library,
    /// `run.json`, `compare.json` and other records of an output directory.
    Record,
    /// `metrics.jsonl`, events, losses by document.
    Measurements,
    /// The name of a revision in the Hugging Face cache.
    Revision,
    /// A file that is copied or hashed unchanged, in parts.
    Content,
}

impl FileKind {
    /// The size limit of this kind in bytes: many times the size of real files. Kinds with
    /// `1 << 44` (16 TiB, the largest file of ext4) are read in parts, the others are held in
    /// memory.
    pub fn max_bytes(self) -> u64 {
        match self {
            FileKind::Revision => 4 << 10,
            FileKind::ChatTemplate => 1 << 20,
            FileKind::RunConfig | FileKind::JsonConfig => 16 << 20,
            FileKind::Record => 64 << 20,
            // The index of a model with 100 000 tensors has about 10 MB.
            FileKind::TensorIndex => 100 << 20,
            FileKind::Tokenizer | FileKind::Prompts => 256 << 20,
            FileKind::Library | FileKind::Measurements => 4 << 30,
            FileKind::Tensors | FileKind::Rows | FileKind::Content => 1 << 44,
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::RunConfig => "a config file",
            FileKind::JsonConfig => "a JSON config",
            FileKind::Tokenizer => "a tokenizer",
            FileKind::ChatTemplate => "a chat template",
            FileKind::TensorIndex => "an index of tensors",
            FileKind::Tensors => "a safetensors file",
            FileKind::Rows => "a file of rows",
            FileKind::Prompts => "a file of prompts",
            FileKind::Library => "a plugin library",
            FileKind::Record => "a record of a run",
            FileKind::Measurements => "a file of measurements",
            FileKind::Revision => "the name of a revision",
            FileKind::Content => "a file",
        })
    }
}
