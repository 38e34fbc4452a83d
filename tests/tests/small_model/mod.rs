//! A small model of two shards, opened, and damage to its files.

mod damage;

pub use damage::{Dice, damaged};

use std::fs;
use std::path::Path;

use espalier_interface::DType;
use espalier_system::failure::Failure;
use espalier_system::files::{
    FileError, HubCache, ModelDirectory, TensorSpec, TensorStore, write_safetensors,
};
use serde_json::json;

pub const SHARDS: [&str; 2] = [
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
];

pub const INDEX: &str = "model.safetensors.index.json";

/// A small model of two shards: `a` and `b` in the first, `c` in the second.
pub fn write_small_model(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    fs::write(
        directory.join("config.json"),
        r#"{"model_type": "llama", "hidden_size": 4}"#,
    )
    .unwrap();
    let first = [
        TensorSpec::new("a", DType::F32, [4, 3]),
        TensorSpec::new("b", DType::BF16, [5]),
    ];
    let second = [TensorSpec::new("c", DType::F16, [2, 2])];
    for (name, specs) in [(SHARDS[0], &first[..]), (SHARDS[1], &second[..])] {
        write_safetensors::<FileError>(
            &directory.join(name),
            &[("format", "pt")],
            specs,
            |i, sink| {
                let elements: u64 = specs[i].shape.iter().product();
                sink.write_f32(&vec![0.5; elements as usize])
            },
        )
        .unwrap();
    }
    write_index(
        directory,
        json!({"a": SHARDS[0], "b": SHARDS[0], "c": SHARDS[1]}),
    );
}

pub fn write_index(directory: &Path, weight_map: serde_json::Value) {
    let index = json!({"metadata": {"total_size": 66}, "weight_map": weight_map});
    fs::write(directory.join(INDEX), index.to_string()).unwrap();
}

pub fn open(directory: &Path) -> Result<TensorStore, FileError> {
    ModelDirectory::open_with(&HubCache::at("no-cache"), directory)?.tensors()
}

pub fn message(directory: &Path) -> String {
    let error = open(directory).expect_err("bad input");
    assert_eq!(error.exit_class().code(), 4, "{error}");
    error.to_string()
}
