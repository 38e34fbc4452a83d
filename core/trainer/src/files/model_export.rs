//! Trained parameters into a complete Hugging Face model directory, sharded where they are large.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::atomic_file::{check_room, write_error};
use super::shard_index::INDEX_NAME;
use super::{
    FileError, ModelDirectory, PendingDirectory, TensorSink, TensorSpec, write_json,
    write_safetensors,
};

/// Largest file of weights written, in bytes; more is cut into shards with an index.
pub const MAX_SHARD_BYTES: u64 = 5_000_000_000;

/// Writes a model to the directory `target`, whole or not at all; what was there before is
/// replaced. Tokenizer, chat template and generation config are copied from `source`.
///
/// `config` is written as it stands, except that its `dtype` (and `torch_dtype`, where it has one)
/// name the dtype of `specs` where that is one dtype: loaders take the dtype from there.
/// `fill` writes tensor `specs[index]`, as for [`write_safetensors`]; a shard has at most
/// `max_shard_bytes` bytes of data or one tensor.
pub fn write_model<E: From<FileError>>(
    target: &Path,
    config: &Value,
    source: &ModelDirectory,
    specs: &[TensorSpec],
    max_shard_bytes: u64,
    mut fill: impl FnMut(usize, &mut TensorSink<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let shards = cut_shards(target, specs, max_shard_bytes)?;
    let pending = PendingDirectory::begin(target)?;
    let home = pending.path();
    check_room(home, shards.iter().map(|shard| shard.bytes).sum())?;
    write_json(&home.join("config.json"), &stamped(config, specs))?;
    for file in source.companion_files()? {
        let name = file.file_name().expect("the name of a file");
        let bytes = std::fs::metadata(&file).map_or(0, |metadata| metadata.len());
        std::fs::copy(&file, home.join(name))
            .map_err(|error| write_error(&target.join(name), bytes, error))?;
    }
    let mut weight_map = Map::new();
    for shard in &shards {
        let part = &specs[shard.specs.clone()];
        let first = shard.specs.start;
        let path = home.join(&shard.name);
        write_safetensors(&path, &[("format", "pt")], part, |i, sink| {
            fill(first + i, sink)
        })?;
        weight_map.extend(part.iter().map(|s| (s.name.clone(), json!(shard.name))));
    }
    if shards.len() > 1 {
        let total_size: u64 = shards.iter().map(|shard| shard.bytes).sum();
        let index = json!({"metadata": {"total_size": total_size}, "weight_map": weight_map});
        write_json(&home.join(INDEX_NAME), &index)?;
    }
    pending.commit_replacing()?;
    Ok(())
}

/// One file of weights: consecutive specs.
#[derive(Debug, PartialEq, Eq)]
struct ShardPlan {
    name: String,
    specs: std::ops::Range<usize>,
    bytes: u64,
}

/// Cuts `specs` in their order; a tensor larger than `max_bytes` is a shard of its own.
fn cut_shards(
    target: &Path,
    specs: &[TensorSpec],
    max_bytes: u64,
) -> Result<Vec<ShardPlan>, FileError> {
    let mut shards = vec![ShardPlan {
        name: String::new(),
        specs: 0..0,
        bytes: 0,
    }];
    for (index, spec) in specs.iter().enumerate() {
        let bytes = spec.stored(target)?.1;
        let last = shards.last_mut().expect("never empty");
        let together = last.bytes.saturating_add(bytes);
        if together > max_bytes && !last.specs.is_empty() {
            shards.push(ShardPlan {
                name: String::new(),
                specs: index..index + 1,
                bytes,
            });
        } else {
            (last.specs.end, last.bytes) = (index + 1, together);
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

/// `config` with the dtype of all `specs`, where they have one that loaders know.
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
    fn shards_hold_what_fits_in_order() {
        let sizes = [3_u64, 2, 9, 1, 1, 4];
        let specs: Vec<_> = sizes
            .iter()
            .map(|&size| TensorSpec::new(size.to_string(), DType::U8, [size]))
            .collect();
        let cut = |max| cut_shards(Path::new("t"), &specs, max).unwrap();
        let ranges: Vec<_> = cut(5)
            .into_iter()
            .map(|shard| (shard.specs, shard.bytes))
            .collect();
        assert_eq!(ranges, [(0..2, 5), (2..3, 9), (3..5, 2), (5..6, 4)]);
        assert_eq!(cut(5)[1].name, "model-00002-of-00004.safetensors");
        assert_eq!(cut(20)[0].name, "model.safetensors");
    }

    #[test]
    fn the_config_names_the_dtype_that_was_written() {
        let specs = [TensorSpec::new("a", DType::F32, [1])];
        let new = stamped(&json!({"dtype": "bfloat16"}), &specs);
        assert_eq!(new, json!({"dtype": "float32"}));
        let old = stamped(&json!({"torch_dtype": "float16"}), &specs);
        assert_eq!(old, json!({"torch_dtype": "float32"}));
        assert_eq!(stamped(&json!({}), &specs), json!({"dtype": "float32"}));
    }
}
