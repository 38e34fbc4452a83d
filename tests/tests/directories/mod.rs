//! Model and adapter directories -> their tensors' values and the names in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use espalier_system::files::{AdapterDirectory, HubCache, ModelDirectory, TensorStore};

pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden/llama")
        .join(name)
}

pub fn open_model(path: &Path) -> ModelDirectory {
    ModelDirectory::open_with(&HubCache::at("no-cache"), path).unwrap()
}

pub fn open_adapter(path: &Path) -> AdapterDirectory {
    AdapterDirectory::open_with(&HubCache::at("no-cache"), path).unwrap()
}

/// The f32 values of every tensor of `store`.
pub fn values(store: &TensorStore) -> BTreeMap<String, Vec<f32>> {
    let read = |name: &str, elements: u64| {
        let mut out = vec![f32::NAN; elements as usize];
        store.read_tensor_f32(name, &mut out).unwrap();
        out
    };
    let entries = store.entries().iter();
    entries
        .map(|entry| (entry.name.clone(), read(&entry.name, entry.elements())))
        .collect()
}

/// The names in `directory`, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
