//! A PEFT adapter directory into its config and tensors, and back.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::directory_member::find_member;
use super::json_file::read_object;
use super::{
    FileError, FileKind, HubCache, PendingDirectory, RepoKind, TensorSink, TensorSpec, TensorStore,
    Wanted, write_json, write_safetensors,
};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// The files that [`write_adapter`] writes.
pub const ADAPTER_FILES: [&str; 2] = [CONFIG, WEIGHTS];

/// A PEFT adapter: the unchanged config and the tensors by their names on disk, such as
/// `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight`, `[R, in]`.
#[derive(Debug)]
pub struct AdapterDirectory {
    path: PathBuf,
    config: Value,
    tensors: TensorStore,
}

impl AdapterDirectory {
    /// Opens the directory `name`, or the repository of that id in this user's cache.
    pub fn open(name: &Path) -> Result<Self, FileError> {
        Self::open_with(&HubCache::from_environment(), name)
    }

    /// Opens the directory `name`, or the repository of that id in `cache`.
    pub fn open_with(cache: &HubCache, name: &Path) -> Result<Self, FileError> {
        let path = cache.resolve(RepoKind::Model, name)?;
        let missing = |expected: &str, advice: &str| FileError::MissingFile {
            directory: path.clone(),
            expected: expected.to_owned(),
            advice: advice.to_owned(),
        };
        let Some(config) = find_member(&path, CONFIG)? else {
            return Err(missing(CONFIG, "expected a PEFT adapter directory"));
        };
        let config = read_object(&config, FileKind::JsonConfig)?;
        let mut weights = find_member(&path, WEIGHTS)?;
        if weights.is_none() && cache.complete(&path, Wanted::AdapterWeights)? {
            weights = find_member(&path, WEIGHTS)?;
        }
        let Some(weights) = weights else {
            let advice = match find_member(&path, "adapter_model.bin")? {
                Some(_) => "convert its adapter_model.bin: load and save it with today's peft",
                None => "expected a PEFT adapter directory",
            };
            return Err(missing(WEIGHTS, advice));
        };
        let tensors = TensorStore::open(&weights)?;
        Ok(AdapterDirectory {
            path,
            config,
            tensors,
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The unchanged object of `adapter_config.json`.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// The tensors of `adapter_model.safetensors`.
    pub fn tensors(&self) -> &TensorStore {
        &self.tensors
    }
}

/// Writes a PEFT adapter beside the directory `target`, which is unchanged until the commit. `fill`
/// writes tensor `specs[index]`, as for [`write_safetensors`].
pub fn write_adapter<E: From<FileError>>(
    target: &Path,
    config: &Value,
    specs: &[TensorSpec],
    fill: impl FnMut(usize, &mut TensorSink<'_>) -> Result<(), E>,
) -> Result<PendingDirectory, E> {
    let pending = PendingDirectory::begin(target)?;
    write_json(&pending.path().join(CONFIG), config)?;
    write_safetensors(
        &pending.path().join(WEIGHTS),
        &[("format", "pt")],
        specs,
        fill,
    )?;
    Ok(pending)
}
