//! A Hugging Face model directory, or the id of a cached one -> config, tokenizer and tensors.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::directory_member::find_member;
use super::json_file::read_object;
use super::shard_index::{INDEX_NAME, read_index};
use super::{FileError, FileHash, FileKind, HubCache, RepoKind, TensorStore, Wanted, hash_file};

/// Common file names of a tokenizer and its chat template.
pub const TOKENIZER_FILES: [&str; 12] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tekken.json",
    CHAT_TEMPLATE,
    "chat_template.json",
];
/// The chat template of a tokenizer, which precedes one in `tokenizer_config.json`.
pub const CHAT_TEMPLATE: &str = "chat_template.jinja";
const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";
const WEIGHTS: &str = "model.safetensors";

/// A model directory with its parsed config. Tensors are opened by [`ModelDirectory::tensors`],
/// since a model with random initial weights has none.
#[derive(Debug)]
pub struct ModelDirectory {
    path: PathBuf,
    config: Value,
    /// Where its weights are fetched into, if it is in there.
    cache: Option<HubCache>,
}

impl ModelDirectory {
    /// Opens the directory `name`, or the repository of that id in this user's cache.
    pub fn open(name: &Path) -> Result<Self, FileError> {
        Self::open_with(&HubCache::from_environment(), name)
    }

    /// Opens the directory `name`, or the repository of that id in `cache`.
    pub fn open_with(cache: &HubCache, name: &Path) -> Result<Self, FileError> {
        let path = cache.resolve(RepoKind::Model, name)?;
        let Some(config) = find_member(&path, CONFIG)? else {
            return Err(FileError::MissingFile {
                advice: match find_member(&path, "adapter_config.json")? {
                    Some(_) => "this is an adapter: give it as --adapter".to_owned(),
                    None => "expected a Hugging Face model directory".to_owned(),
                },
                directory: path,
                expected: CONFIG.to_owned(),
            });
        };
        Ok(ModelDirectory {
            config: read_object(&config, FileKind::JsonConfig)?,
            path,
            cache: Some(cache.clone()),
        })
    }

    /// A model with a config only; `path` is its name in messages.
    pub fn without_files(path: PathBuf, config: Value) -> Self {
        ModelDirectory {
            path,
            config,
            cache: None,
        }
    }

    /// The directory; of a cached repository, its snapshot.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The unchanged object of `config.json`.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// The file `name` of the directory, if there is one. A plain name, no path.
    pub fn file(&self, name: &str) -> Result<Option<PathBuf>, FileError> {
        find_member(&self.path, name)
    }

    /// `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// [`FileError::MissingFile`] where there is none, or only a tokenizer of an older format.
    pub fn tokenizer(&self) -> Result<PathBuf, FileError> {
        if let Some(path) = self.file("tokenizer.json")? {
            return Ok(path);
        }
        let advice = match self.file("tokenizer.model")? {
            Some(_) => {
                "convert its tokenizer.model: \
                 `AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)`"
            }
            None => "copy the tokenizer of the model there",
        };
        Err(FileError::MissingFile {
            directory: self.path.clone(),
            expected: "tokenizer.json".to_owned(),
            advice: advice.to_owned(),
        })
    }

    /// `tokenizer_config.json`, if there is one.
    pub fn tokenizer_config(&self) -> Result<Option<Value>, FileError> {
        self.file("tokenizer_config.json")?
            .map(|path| read_object(&path, FileKind::JsonConfig))
            .transpose()
    }

    /// `generation_config.json`, if there is one.
    pub fn generation_config(&self) -> Result<Option<Value>, FileError> {
        self.file(GENERATION_CONFIG)?
            .map(|path| read_object(&path, FileKind::JsonConfig))
            .transpose()
    }

    /// All existing files of the tokenizer and the chat template.
    pub fn tokenizer_files(&self) -> Result<Vec<PathBuf>, FileError> {
        self.existing(&TOKENIZER_FILES)
    }

    /// The files of a complete copy of the model, except weights and config.
    pub(super) fn companion_files(&self) -> Result<Vec<PathBuf>, FileError> {
        let mut files = self.existing(&[GENERATION_CONFIG])?;
        files.extend(self.tokenizer_files()?);
        Ok(files)
    }

    /// Opens the tensors: `model.safetensors`, else the shards of its index. Those of a repository
    /// in the cache are fetched first, where they are missing.
    ///
    /// # Errors
    ///
    /// [`FileError::MissingFile`], and errors of fetching, reading and of broken files.
    pub fn tensors(&self) -> Result<TensorStore, FileError> {
        if let Some(cache) = self.cache.as_ref().filter(|_| !self.has_weights()) {
            cache.complete(&self.path, Wanted::Weights)?;
        }
        if let Some(path) = self.file(WEIGHTS)? {
            return TensorStore::open(&path);
        }
        if let Some(index) = self.file(INDEX_NAME)? {
            return TensorStore::open_index(&self.path, &index);
        }
        let mut advice = "download the model's safetensors files".to_owned();
        for old in ["pytorch_model.bin", "pytorch_model.bin.index.json"] {
            if self.file(old)?.is_some() {
                advice = format!("convert its {old} to safetensors");
            }
        }
        Err(FileError::MissingFile {
            directory: self.path.clone(),
            expected: format!("{WEIGHTS} or {INDEX_NAME}"),
            advice,
        })
    }

    /// Whether `model.safetensors` is there, or an index and all of its shards.
    fn has_weights(&self) -> bool {
        let is_there = |name| self.file(name).ok().flatten();
        let has_shards = |index: PathBuf| read_index(&self.path, &index).is_ok();
        is_there(WEIGHTS).is_some() || is_there(INDEX_NAME).is_some_and(has_shards)
    }

    /// The hashes of the config, the tokenizer's files and the files of `tensors`.
    pub fn hashes(&self, tensors: Option<&TensorStore>) -> Result<Vec<FileHash>, FileError> {
        let mut files = self.existing(&[CONFIG])?;
        files.extend(self.tokenizer_files()?);
        files.extend(
            tensors
                .into_iter()
                .flat_map(TensorStore::files)
                .map(Path::to_owned),
        );
        files.iter().map(|path| hash_file(path)).collect()
    }

    fn existing(&self, names: &[&str]) -> Result<Vec<PathBuf>, FileError> {
        let mut found = Vec::new();
        for name in names {
            found.extend(self.file(name)?);
        }
        Ok(found)
    }
}
