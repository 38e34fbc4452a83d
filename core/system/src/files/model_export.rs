//! Weights -> a complete Hugging Face model directory, sharded if large.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::atomic_file::{check_room, write_error};
use super::safetensors_writer::SafetensorsFile;
use super::shard_index::INDEX_NAME;
use super::{FileError, ModelDirectory, PendingDirectory, TensorSink, TensorSpec, write_json};

/// Largest written file of weights, in bytes; larger models are sharded, with an index.
pub const MAX_SHARD_BYTES: u64 = 5_000_000_000;

/// The treatment of an existing directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is kept, and the write is refused before any work.
    Refuse,
    /// It is replaced.
    Replace,
}

/// A model directory to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewModel<'a> {
    /// Its path.
    pub path: &'a Path,
    /// Its `config.json`.
    pub config: &'a Value,
    /// Tokenizer, chat template and generation config are copied from here.
    pub source: &'a ModelDirectory,
    /// The treatment of an existing directory at `path`.
    pub existing: Existing,
    /// Largest file of weights in bytes of data; a larger group of tensors gets its own file.
    pub max_shard_bytes: u64,
}

/// The destination of the tensors of one group, in any order.
#[derive(Debug)]
pub struct GroupSink<'f, 's> {
    file: &'f mut SafetensorsFile<'s>,
    first: usize,
}

impl GroupSink<'_, '_> {
    /// The destination of tensor `index` of the group.
    pub fn tensor(&mut self, index: usize) -> TensorSink<'_> {
        self.file.tensor(self.first + index)
    }
}

/// Writes a model tensor by tensor beside the directory `target`, which is unchanged until the
/// commit. Otherwise as [`write_model_groups`].
pub fn write_model<E: From<FileError>>(
    target: &Path,
    config: &Value,
    source: &ModelDirectory,
    specs: &[TensorSpec],
    max_shard_bytes: u64,
    mut fill: impl FnMut(usize, &mut TensorSink<'_>) -> Result<(), E>,
) -> Result<PendingDirectory, E> {
    let model = NewModel {
        path: target,
        config,
        source,
        existing: Existing::Replace,
        max_shard_bytes,
    };
    let groups: Vec<_> = specs.iter().map(|spec| vec![spec.clone()]).collect();
    write_pending_model(&model, &groups, |index, sink| {
        fill(index, &mut sink.tensor(0))
    })
}

/// Writes a model atomically.
///
/// Its config is written unchanged, except for `dtype` (and `torch_dtype`, where it exists). These
/// are set to the dtype of the tensors where all have the same one, since loaders read it there.
/// `fill` writes the tensors of `groups[index]` to one file: loaders of packed weights expect all
/// tensors of a weight in one file.
pub fn write_model_groups<E: From<FileError>>(
    model: &NewModel<'_>,
    groups: &[Vec<TensorSpec>],
    fill: impl FnMut(usize, &mut GroupSink<'_, '_>) -> Result<(), E>,
) -> Result<(), E> {
    let pending = write_pending_model(model, groups, fill)?;
    match model.existing {
        Existing::Refuse => pending.commit()?,
        Existing::Replace => pending.commit_replacing()?,
    }
    Ok(())
}

/// As [`write_model_groups`], without the commit.
pub fn write_pending_model<E: From<FileError>>(
    model: &NewModel<'_>,
    groups: &[Vec<TensorSpec>],
    mut fill: impl FnMut(usize, &mut GroupSink<'_, '_>) -> Result<(), E>,
) -> Result<PendingDirectory, E> {
    let target = model.path;
    if model.existing == Existing::Refuse {
        refuse_existing(target)?;
    }
    let shards = cut_shards(target, groups, model.max_shard_bytes)?;
    let pending = PendingDirectory::begin(target)?;
    let home = pending.path();
    check_room(home, shards.iter().map(|shard| shard.bytes).sum())?;
    let specs: Vec<TensorSpec> = groups.iter().flatten().cloned().collect();
    write_json(&home.join("config.json"), &stamped(model.config, &specs))?;
    copy_files(&model.source.companion_files()?, home, target)?;
    let mut weight_map = Map::new();
    let mut first = 0;
    for shard in &shards {
        let count: usize = groups[shard.groups.clone()].iter().map(Vec::len).sum();
        let part = &specs[first..first + count];
        first += count;
        let path = home.join(&shard.name);
        let mut file = SafetensorsFile::create(&path, &[("format", "pt")], part)?;
        let mut begin = 0;
        for index in shard.groups.clone() {
            fill(
                index,
                &mut GroupSink {
                    file: &mut file,
                    first: begin,
                },
            )?;
            begin += groups[index].len();
        }
        file.commit()?;
        weight_map.extend(part.iter().map(|s| (s.name.clone(), json!(shard.name))));
    }
    if shards.len() > 1 {
        let total_size: u64 = shards.iter().map(|shard| shard.bytes).sum();
        let index = json!({"metadata": {"total_size": total_size}, "weight_map": weight_map});
        write_json(&home.join(INDEX_NAME), &index)?;
    }
    Ok(pending)
}

/// Refuses an existing target.
///
/// # Errors
///
/// [`FileError::Exists`].
pub fn refuse_existing(target: &Path) -> Result<(), FileError> {
    match target.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(_) => Err(FileError::Exists {
            path: target.to_owned(),
        }),
    }
}

/// Copies `files` to the directory `home`; `target` is its final name, for messages.
///
/// # Errors
/// A file that cannot be read, a full disk or another write error.
pub fn copy_files(files: &[PathBuf], home: &Path, target: &Path) -> Result<(), FileError> {
    for file in files {
        let name = file.file_name().expect("the name of a file");
        let bytes = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
        std::fs::copy(file, home.join(name))
            .map_err(|error| write_error(&target.join(name), bytes, error))?;
    }
    Ok(())
}

/// One file of weights: consecutive groups.
#[derive(Debug, PartialEq, Eq)]
struct ShardPlan {
    name: String,
    groups: std::ops::Range<usize>,
    bytes: u64,
}

/// Splits `groups` into shards in their order; a group larger than `max_bytes` gets its own shard.
fn cut_shards(
    target: &Path,
    groups: &[Vec<TensorSpec>],
    max_bytes: u64,
) -> Result<Vec<ShardPlan>, FileError> {
    let mut shards = vec![ShardPlan {
        name: String::new(),
        groups: 0..0,
        bytes: 0,
    }];
    for (index, group) in groups.iter().enumerate() {
        let mut bytes = 0_u64;
        for spec in group {
            bytes = bytes.saturating_add(spec.stored(target)?.1);
        }
        let last = shards.last_mut().expect("never empty");
        let together = last.bytes.saturating_add(bytes);
        if together > max_bytes && !last.groups.is_empty() {
            shards.push(ShardPlan {
                name: String::new(),
                groups: index..index + 1,
                bytes,
            });
        } else {
            (last.groups.end, last.bytes) = (index + 1, together);
        }
    }
    let count = shards.len();
    for (index, shard) in shards.iter_mut().enumerate() {
        shard.name = match count {
            1 => "model.safetensors".to_owned(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
        };
    }
    Ok(shards)
}

/// `config` with the dtype of all `specs`, where they share one that loaders support.
fn stamped(config: &Value, specs: &[TensorSpec]) -> Value {
    use espalier_interface::DType;
    let mut config = config.clone();
    let Some(first) = specs.first() else {
        return config;
    };
    let name = match first.dtype {
        DType::F64 => "float64",
        DType::F32 => "float32",
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
        _ => return config,
    };
    if specs.iter().all(|spec| spec.dtype == first.dtype)
        && let Some(entries) = config.as_object_mut()
    {
        if entries.contains_key("torch_dtype") {
            entries.insert("torch_dtype".to_owned(), json!(name));
        }
        if entries.contains_key("dtype") || !entries.contains_key("torch_dtype") {
            entries.insert("dtype".to_owned(), json!(name));
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use espalier_interface::DType;

    #[test]
    fn shards_are_filled_in_order() {
        let sizes = [3_u64, 2, 9, 1, 1, 4];
        let groups: Vec<_> = sizes
            .iter()
            .map(|&size| vec![TensorSpec::new(size.to_string(), DType::U8, [size])])
            .collect();
        let cut = |max| cut_shards(Path::new("t"), &groups, max).unwrap();
        let ranges: Vec<_> = cut(5)
            .into_iter()
            .map(|shard| (shard.groups, shard.bytes))
            .collect();
        assert_eq!(ranges, [(0..2, 5), (2..3, 9), (3..5, 2), (5..6, 4)]);
        assert_eq!(cut(5)[1].name, "model-00002-of-00004.safetensors");
        assert_eq!(cut(20)[0].name, "model.safetensors");
    }

    #[test]
    fn the_config_names_the_written_dtype() {
        let specs = [TensorSpec::new("a", DType::F32, [1])];
        let new = stamped(&json!({"dtype": "bfloat16"}), &specs);
        assert_eq!(new, json!({"dtype": "float32"}));
        let old = stamped(&json!({"torch_dtype": "float16"}), &specs);
        assert_eq!(old, json!({"torch_dtype": "float32"}));
        assert_eq!(stamped(&json!({}), &specs), json!({"dtype": "float32"}));
    }
}
