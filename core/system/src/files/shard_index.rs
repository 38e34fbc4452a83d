//! `model.safetensors.index.json` -> the shards of a model and the tensors of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::directory_member::{find_member, is_plain_name};
use super::json_file::{UniqueMap, read_json};
use super::{FileError, FileKind};

/// The name of the index in a model directory.
pub(super) const INDEX_NAME: &str = "model.safetensors.index.json";

/// One shard and its tensors according to the index.
pub(super) struct Shard {
    pub path: PathBuf,
    pub tensors: Vec<String>,
}

#[derive(Deserialize)]
struct IndexFile {
    weight_map: UniqueMap<String>,
}

/// Reads the index of `directory`; shards by name.
///
/// # Errors
///
/// [`FileError::IndexEntry`] for an entry that is no plain file name, [`FileError::MissingShard`].
pub(super) fn read_index(directory: &Path, index: &Path) -> Result<Vec<Shard>, FileError> {
    let IndexFile { weight_map } = read_json(index, FileKind::TensorIndex)?;
    let mut by_shard: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, shard) in weight_map.0 {
        if !is_plain_name(&shard) {
            let (path, found) = (index.to_owned(), shard);
            return Err(FileError::IndexEntry {
                path,
                tensor,
                found,
            });
        }
        by_shard.entry(shard).or_default().push(tensor);
    }
    let locate = |(shard, tensors): (String, Vec<String>)| match find_member(directory, &shard)? {
        Some(path) => Ok(Shard { path, tensors }),
        None => Err(FileError::MissingShard {
            directory: directory.to_owned(),
            index: INDEX_NAME.to_owned(),
            shard,
            tensor: tensors.into_iter().next().unwrap_or_default(),
        }),
    };
    by_shard.into_iter().map(locate).collect()
}
