//! Model and adapter directories, read and written: golden files of the peers, and shards.

mod directories;

use std::fs;
use std::path::PathBuf;

use espalier_interface::DType;
use espalier_system::failure::Failure;
use espalier_system::files::{
    FileError, PendingDirectory, TensorSpec, TensorStore, hash_file, write_adapter, write_model,
    write_safetensors,
};
use safetensors::SafeTensors;
use serde_json::json;

use directories::{golden, names, open_adapter, open_model, values};

#[test]
fn a_golden_model_reads_like_the_formats_own_reader() {
    let model = open_model(&golden("tiny"));
    assert_eq!(model.config()["hidden_size"], 64);
    assert_eq!(model.tokenizer().unwrap(), golden("tiny/tokenizer.json"));
    assert!(model.tokenizer_config().unwrap().is_some());
    let store = model.tensors().unwrap();
    assert_eq!(store.metadata(), [("format".to_owned(), "pt".to_owned())]);

    let bytes = fs::read(golden("tiny/model.safetensors")).unwrap();
    let oracle = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(store.entries().len(), oracle.len());
    for entry in store.entries() {
        let expected = oracle.tensor(&entry.name).unwrap();
        let shape: Vec<u64> = expected.shape().iter().map(|&size| size as u64).collect();
        assert_eq!((&entry.dtype, &entry.shape), (&expected.dtype(), &shape));
        let mut raw = vec![0; expected.data().len()];
        store.read_tensor_bytes(&entry.name, &mut raw).unwrap();
        assert_eq!(raw, expected.data());
        let mut floats = vec![0.0_f32; raw.len() / 4];
        store.read_tensor_f32(&entry.name, &mut floats).unwrap();
        assert!(
            floats.iter().flat_map(|value| value.to_le_bytes()).eq(raw),
            "{}",
            entry.name
        );
    }
    let hashes = model.hashes(Some(&store)).unwrap();
    let files: Vec<_> = hashes.iter().map(|hash| hash.file.as_str()).collect();
    let expected = [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    ];
    assert_eq!(files, expected);
}

#[test]
fn a_golden_adapter_survives_reading_and_writing() {
    let temp = tempfile::tempdir().unwrap();
    let original = open_adapter(&golden("adapter_init"));
    assert_eq!(original.config()["r"], 8);
    let name = "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight";
    assert_eq!(
        original
            .tensors()
            .entry_of_shape(name, &[8, 176])
            .unwrap()
            .elements(),
        1408
    );

    let entries = original.tensors().entries().iter();
    let specs: Vec<_> = entries
        .map(|entry| TensorSpec::new(&entry.name, DType::F32, entry.shape.clone()))
        .collect();
    let target = temp.path().join("out/adapter");
    let tensors = values(original.tensors());
    let write = || {
        write_adapter::<FileError>(&target, original.config(), &specs, |index, sink| {
            sink.write_f32(&tensors[&specs[index].name])
        })
        .and_then(PendingDirectory::commit_replacing)
    };
    write().unwrap();
    // The second time it replaces the first.
    write().unwrap();
    assert_eq!(names(target.parent().unwrap()), ["adapter"]);
    assert_eq!(
        names(&target),
        ["adapter_config.json", "adapter_model.safetensors"]
    );
    let copy = open_adapter(&target);
    assert_eq!(copy.config(), original.config());
    let keys = |config: &serde_json::Value| config.as_object().unwrap().keys().cloned().collect();
    let (found, expected): (Vec<_>, Vec<_>) = (keys(copy.config()), keys(original.config()));
    assert_eq!(found, expected, "the order of the keys is kept");
    assert_eq!(values(copy.tensors()), tensors);
    let bytes = |path: PathBuf| fs::read(path.join("adapter_model.safetensors")).unwrap();
    assert_eq!(
        bytes(target),
        bytes(golden("adapter_init")),
        "as the peer wrote it, to the byte"
    );
}

#[test]
fn half_precision_reads_across_chunks_and_from_the_middle() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("half.safetensors");
    let count = 1_300_001;
    let specs = [
        TensorSpec::new("bf16", DType::BF16, [count]),
        TensorSpec::new("f16", DType::F16, [count]),
        TensorSpec::new("f64", DType::F64, [count]),
        TensorSpec::new("none", DType::F32, [0, 7]),
        TensorSpec::new("codes", DType::U8, [3]),
    ];
    // Small integers are exact in all of these dtypes.
    let expected: Vec<f32> = (0..count).map(|i| (i % 251) as f32 - 125.0).collect();
    write_safetensors::<FileError>(&path, &[], &specs, |index, sink| match index {
        0..=2 => sink.write_f32(&expected),
        3 => Ok(()),
        _ => sink.write_bytes(&[1, 2, 3]),
    })
    .unwrap();
    let store = TensorStore::open(&path).unwrap();
    let mut out = vec![0.0; count as usize];
    for name in ["bf16", "f16", "f64"] {
        out.fill(f32::NAN);
        store.read_tensor_f32(name, &mut out).unwrap();
        assert!(out == expected, "{name}");
        store
            .read_elements_f32(name, 600_001, &mut out[..700_000])
            .unwrap();
        assert!(out[..700_000] == expected[600_001..], "{name}");
        let beyond = store
            .read_elements_f32(name, 600_002, &mut out[..700_000])
            .unwrap_err();
        assert!(
            matches!(
                beyond,
                FileError::Elements {
                    expected: 1_300_002,
                    ..
                }
            ),
            "{beyond}"
        );
    }
    store.read_tensor_f32("none", &mut []).unwrap();
    let codes = store
        .read_tensor_f32("codes", &mut out[..3])
        .unwrap_err()
        .to_string();
    assert!(
        codes.contains("`codes` is U8; expected F32, F16, BF16 or F64"),
        "{codes}"
    );
}

#[test]
fn a_model_directory_is_written_in_shards_and_read_back() {
    let temp = tempfile::tempdir().unwrap();
    let source = open_model(&golden("tiny"));
    let store = source.tensors().unwrap();
    let tensors = values(&store);
    let entries = store.entries().iter();
    let specs: Vec<_> = entries
        .map(|e| TensorSpec::new(&e.name, DType::F32, e.shape.clone()))
        .collect();
    let mut config = source.config().clone();
    config["dtype"] = json!("bfloat16");
    for (max_shard_bytes, num_files) in [(200_000, 7), (u64::MAX, 5)] {
        let target = temp.path().join("model");
        write_model::<FileError>(
            &target,
            &config,
            &source,
            &specs,
            max_shard_bytes,
            |i, sink| sink.write_f32(&tensors[&specs[i].name]),
        )
        .and_then(PendingDirectory::commit_replacing)
        .unwrap();
        let copy = open_model(&target);
        assert_eq!(
            copy.config(),
            source.config(),
            "the dtype is that of the tensors again"
        );
        assert_eq!(values(&copy.tensors().unwrap()), tensors);
        let files = names(&target);
        assert!(
            files.contains(&"generation_config.json".to_owned()),
            "{files:?}"
        );
        // config, generation config, two of the tokenizer; then shards and index, or one file.
        assert!(files.len() >= num_files, "{files:?}");
        assert_eq!(
            files.contains(&"model.safetensors".to_owned()),
            num_files == 5
        );
        assert_eq!(names(temp.path()), ["model"]);
    }
}

#[test]
fn missing_tensors_and_wrong_shapes_are_named() {
    let store = open_model(&golden("tiny")).tensors().unwrap();
    let missing = store
        .entry("model.layers.0.self_attn.q_porj.weight")
        .unwrap_err();
    let nearest = "the nearest names it has: `model.layers.0.self_attn.q_proj.weight`";
    assert!(missing.to_string().contains(nearest), "{missing}");
    assert_eq!(missing.exit_class().code(), 4);
    let shape = store
        .entry_of_shape("model.norm.weight", &[65])
        .unwrap_err()
        .to_string();
    assert!(
        shape.contains("`model.norm.weight` has shape [64], expected [65]"),
        "{shape}"
    );
    let elements = store
        .read_tensor_f32("model.norm.weight", &mut [0.0; 3])
        .unwrap_err();
    assert!(
        elements
            .to_string()
            .contains("has 64 elements, 3 are expected"),
        "{elements}"
    );
}

#[test]
fn files_are_hashed_by_content() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("abc");
    fs::write(&path, "abc").unwrap();
    let hash = hash_file(&path).unwrap();
    // FIPS 180-2, appendix B.1.
    let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(
        (hash.sha256.as_str(), hash.bytes, hash.file.as_str()),
        (expected, 3, "abc")
    );
}
