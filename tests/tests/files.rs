//! Model and adapter directories, read and written: golden files of the peers, shards, atomicity.
#![allow(clippy::print_stdout)] // Figures, for whoever looks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use espalier_interface::DType;
use espalier_system::failure::Failure;
use espalier_system::files::{
    AdapterDirectory, FileError, HubCache, ModelDirectory, PartialFile, PendingDirectory,
    TensorSpec, TensorStore, hash_file, write_adapter, write_json, write_model, write_safetensors,
};
use safetensors::SafeTensors;
use serde_json::json;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden/llama")
        .join(name)
}

fn open_model(path: &Path) -> ModelDirectory {
    ModelDirectory::open_with(&HubCache::at("no-cache"), path).unwrap()
}

fn open_adapter(path: &Path) -> AdapterDirectory {
    AdapterDirectory::open_with(&HubCache::at("no-cache"), path).unwrap()
}

/// The f32 values of every tensor of `store`.
fn values(store: &TensorStore) -> BTreeMap<String, Vec<f32>> {
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

/// Writes `tensors` of `specs` as f32 values.
fn write_values(path: &Path, specs: &[TensorSpec], tensors: &[Vec<f32>]) -> Result<(), FileError> {
    write_safetensors(path, &[("format", "pt")], specs, |i, sink| {
        sink.write_f32(&tensors[i])
    })
}

/// The names in `directory`, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_golden_model_reads_as_the_format_s_own_reader_does() {
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
            .contains("has 64 elements, 3 are wanted"),
        "{elements}"
    );
}

#[test]
fn a_failed_write_leaves_what_was_there() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("weights.safetensors");
    let specs = [
        TensorSpec::new("a", DType::F32, [4]),
        TensorSpec::new("b", DType::F32, [2]),
    ];
    write_values(&path, &specs, &[vec![1.0; 4], vec![2.0; 2]]).unwrap();
    let before = fs::read(&path).unwrap();
    for lengths in [(4, 1), (4, 3), (5, 2), (0, 2)] {
        let tensors = [vec![3.0; lengths.0], vec![4.0; lengths.1]];
        let error = write_values(&path, &specs, &tensors).unwrap_err();
        assert!(matches!(error, FileError::Announced { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(names(temp.path()), ["weights.safetensors"]);
    }
    let panicked = std::panic::catch_unwind(|| {
        write_safetensors::<FileError>(&path, &[], &specs, |_, _| panic!("a backend died"))
    });
    assert!(panicked.is_err());
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(names(temp.path()), ["weights.safetensors"]);
}

#[test]
fn a_directory_appears_whole_or_not_at_all() {
    let temp = tempfile::tempdir().unwrap();
    let target = temp.path().join("step-1");
    let write = |pending: &PendingDirectory, value: u32| {
        fs::create_dir(pending.path().join("inner")).unwrap();
        write_json(&pending.path().join("inner/state.json"), &json!(value)).unwrap();
    };
    let value = || fs::read_to_string(target.join("inner/state.json")).unwrap();
    {
        let abandoned = PendingDirectory::begin(&target).unwrap();
        write(&abandoned, 0);
    }
    assert_eq!(names(temp.path()), [""; 0]);
    // What a killed process leaves is swept by the next attempt.
    fs::create_dir_all(temp.path().join("step-1.partial/inner/deep")).unwrap();
    let first = PendingDirectory::begin(&target).unwrap();
    write(&first, 1);
    assert!(!target.exists());
    first.commit().unwrap();
    assert_eq!(value(), "1\n");

    let refused = PendingDirectory::begin(&target).unwrap();
    write(&refused, 2);
    assert!(matches!(refused.commit(), Err(FileError::Exists { .. })));
    assert_eq!(value(), "1\n");
    let second = PendingDirectory::begin(&target).unwrap();
    write(&second, 3);
    second.commit_replacing().unwrap();
    assert_eq!(value(), "3\n");
    assert_eq!(names(temp.path()), ["step-1"]);

    // A file of that name is replaced as well.
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    PendingDirectory::begin(&file)
        .unwrap()
        .commit_replacing()
        .unwrap();
    assert!(file.is_dir() && names(temp.path()) == ["file", "step-1"]);

    // A replacement that died between its two steps is undone.
    fs::rename(&target, temp.path().join("step-1.replaced.partial")).unwrap();
    drop(PendingDirectory::begin(&target).unwrap());
    assert_eq!(value(), "3\n");
}

#[test]
fn an_output_is_written_by_one_at_a_time() {
    let temp = tempfile::tempdir().unwrap();
    let in_use = |error: FileError| {
        assert_eq!(error.exit_class().code(), 2);
        assert!(
            error.to_string().contains("is in use by another process"),
            "{error}"
        );
    };
    let (directory, file) = (temp.path().join("model"), temp.path().join("report.html"));
    let first = PendingDirectory::begin(&directory).unwrap();
    write_json(&first.path().join("config.json"), &json!(1)).unwrap();
    in_use(PendingDirectory::begin(&directory).unwrap_err());
    assert!(first.path().join("config.json").exists());
    first.commit().unwrap();

    let mut first = PartialFile::create(&file, 1).unwrap();
    in_use(PartialFile::create(&file, 1).unwrap_err());
    first.write(b"1").unwrap();
    first.commit().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "1");
    assert_eq!(names(temp.path()), ["model", "report.html"]);

    // Many at once: each is told that another one writes it, or that it is there, or writes it whole.
    let (whole, target) = (
        std::sync::atomic::AtomicU32::new(0),
        temp.path().join("many"),
    );
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (target, whole) = (&target, &whole);
            scope.spawn(move || {
                for turn in 0..50 {
                    let Ok(pending) = PendingDirectory::begin(target) else {
                        continue;
                    };
                    let value = json!(thread * 100 + turn);
                    write_json(&pending.path().join("value.json"), &value).unwrap();
                    match pending.commit() {
                        Ok(()) => whole.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
                        Err(FileError::Exists { .. }) => 0,
                        Err(error) => panic!("{error}"),
                    };
                }
            });
        }
    });
    assert_eq!(whole.into_inner(), 1);
    assert_eq!(names(&target), ["value.json"]);
    assert_eq!(names(temp.path()), ["many", "model", "report.html"]);
}

/// The test process runs itself again under a limit on the size of files, which every user may
/// set; to the writer it is a full disk.
#[test]
fn a_full_disk_is_reported_and_loses_nothing() {
    const DIRECTORY: &str = "ESPALIER_TEST_FULL_DISK";
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return write_beyond_the_limit(Path::new(&directory));
    }
    let temp = tempfile::tempdir().unwrap();
    let specs = [TensorSpec::new("a", DType::F32, [2])];
    let file = temp.path().join("weights.safetensors");
    write_values(&file, &specs, &[vec![1.0, 2.0]]).unwrap();
    let adapter = temp.path().join("adapter");
    write_adapter::<FileError>(&adapter, &json!({"r": 1}), &specs, |_, s| {
        s.write_f32(&[3.0, 4.0])
    })
    .and_then(PendingDirectory::commit_replacing)
    .unwrap();

    let script = "trap '' XFSZ; ulimit -f 64; exec \"$0\" --exact \"$1\" --nocapture";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg("a_full_disk_is_reported_and_loses_nothing")
        .env(DIRECTORY, temp.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("wrote until the disk was full"),
        "the child did its part: {text}"
    );

    assert_eq!(names(temp.path()), ["adapter", "weights.safetensors"]);
    let store = TensorStore::open(&file).unwrap();
    assert_eq!(values(&store)["a"], [1.0, 2.0]);
    assert_eq!(values(open_adapter(&adapter).tensors())["a"], [3.0, 4.0]);
}

fn write_beyond_the_limit(directory: &Path) {
    let specs = [TensorSpec::new("a", DType::F32, [1_000_000])];
    let check = |file: &str, error: FileError| {
        assert_eq!(error.exit_class().code(), 8, "{error}");
        let FileError::DiskFull {
            path, needed_bytes, ..
        } = &error
        else {
            panic!("{error}")
        };
        assert!(path.ends_with(file), "{error}");
        assert!((4_000_000..4_000_200).contains(needed_bytes), "{error}");
        assert!(
            error
                .to_string()
                .contains(&format!("needs {needed_bytes} bytes")),
            "{error}"
        );
    };
    let tensors = [vec![5.0; 1_000_000]];
    let file = directory.join("weights.safetensors");
    check(
        "weights.safetensors",
        write_values(&file, &specs, &tensors).unwrap_err(),
    );
    let adapter = write_adapter(
        &directory.join("adapter"),
        &json!({"r": 2}),
        &specs,
        |_, sink| sink.write_f32(&tensors[0]),
    );
    check("adapter_model.safetensors", adapter.unwrap_err());
    let source = open_model(&golden("tiny"));
    let target = directory.join("model");
    let config = source.config().clone();
    let model = write_model(&target, &config, &source, &specs, u64::MAX, |_, sink| {
        sink.write_f32(&tensors[0])
    });
    check("model.safetensors", model.unwrap_err());
    println!("wrote until the disk was full");
}

#[test]
fn more_than_the_disk_has_is_refused_before_a_byte_is_written() {
    let temp = tempfile::tempdir().unwrap();
    let specs = [TensorSpec::new("a", DType::F32, [1 << 58])];
    let path = temp.path().join("huge.safetensors");
    let error = write_safetensors(&path, &[], &specs, |_, _| -> Result<(), FileError> {
        panic!("nothing is to be written")
    })
    .unwrap_err();
    assert!(
        matches!(
            error,
            FileError::DiskFull {
                free_bytes: Some(_),
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(names(temp.path()), [""; 0]);
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
