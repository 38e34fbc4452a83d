//! Bytes as tensors' files: a safetensors file, and the index of a model of several.

use std::path::Path;

use espalier_interface::DType;
use espalier_system::failure::Failure;
use espalier_system::files::{
    FileError, HubCache, ModelDirectory, TensorSpec, TensorStore, write_safetensors,
};
use safetensors::SafeTensors;

use crate::place::{place, write};

/// Reads every tensor as bytes and as numbers; an unreadable one is an error, and the format's own
/// reader agrees.
pub fn safetensors(data: &[u8]) {
    let path = place(|_| ()).join("model.safetensors");
    write(&path, data);
    match (TensorStore::open(&path), SafeTensors::deserialize(data)) {
        (Ok(store), theirs) => {
            if let Err(theirs) = theirs {
                panic!("accepted here, but {theirs}");
            }
            read_all(&store);
        }
        (Err(error), Ok(_)) => {
            let text = error.to_string();
            let stricter = matches!(error, FileError::TensorName { .. }) || text.contains("twice");
            assert!(stricter, "the format's own reader accepts, but {text}");
        }
        (Err(error), Err(_)) => assert_eq!(error.exit_class().code(), 4, "{error}"),
    }
}

/// Opens a model of two shards by the index.
pub fn shard_index(data: &[u8]) {
    let folder = place(write_shards);
    write(&folder.join("model.safetensors.index.json"), data);
    let opened = ModelDirectory::open_with(&HubCache::at("no-cache"), folder)
        .and_then(|model| model.tensors());
    match opened {
        Ok(store) => read_all(&store),
        Err(error) => assert_eq!(error.exit_class().code(), 4, "{error}"),
    }
}

fn write_shards(folder: &Path) {
    write(&folder.join("config.json"), b"{\"model_type\": \"llama\"}");
    for (number, tensor) in [(1, "a"), (2, "b")] {
        let specs = [TensorSpec::new(tensor, DType::F32, [2, 2])];
        let name = format!("model-0000{number}-of-00002.safetensors");
        write_safetensors::<FileError>(&folder.join(name), &[], &specs, |_, sink| {
            sink.write_f32(&[0.5; 4])
        })
        .expect("a shard");
    }
}

fn read_all(store: &TensorStore) {
    for entry in store.entries() {
        let bytes = entry.bytes.end - entry.bytes.start;
        assert!(bytes <= 64 << 20, "{entry:?} is larger than its file");
        let mut raw = vec![0; bytes as usize];
        store
            .read_tensor_bytes(&entry.name, &mut raw)
            .expect("the file is whole");
        if entry.elements() <= bytes {
            let mut numbers = vec![0.0; entry.elements() as usize];
            match store.read_tensor_f32(&entry.name, &mut numbers) {
                Ok(()) | Err(FileError::NotFloat { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
