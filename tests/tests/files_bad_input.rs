//! Model files that are truncated, false or hostile: each is a clear error, never a panic.

mod small_model;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use espalier_system::failure::Failure;
use espalier_system::files::{AdapterDirectory, FileError, HubCache, ModelDirectory, TensorStore};
use safetensors::SafeTensors;
use serde_json::json;

use small_model::{Dice, INDEX, SHARDS, damaged, message, open, write_index, write_small_model};

#[test]
fn an_index_names_only_files_of_its_directory() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path().join("model");
    write_small_model(&directory);
    fs::copy(
        directory.join(SHARDS[0]),
        temp.path().join("outside.safetensors"),
    )
    .unwrap();
    let absolute = temp
        .path()
        .join("outside.safetensors")
        .display()
        .to_string();
    for tricky in [
        "../outside.safetensors",
        &absolute,
        "a/b",
        "..",
        ".",
        "",
        "a\0b",
    ] {
        write_index(&directory, json!({"a": tricky}));
        let message = message(&directory);
        assert!(
            message.contains("expected the plain name of a file"),
            "{tricky:?}: {message}"
        );
        assert!(message.contains("tensor `a`"), "{message}");
    }
    symlink("../outside.safetensors", directory.join("link.safetensors")).unwrap();
    write_index(&directory, json!({"a": "link.safetensors"}));
    assert!(message(&directory).contains("outside its directory"));
    // A link inside the directory is treated like a file.
    symlink(SHARDS[0], directory.join("inside.safetensors")).unwrap();
    write_index(&directory, json!({"a": "inside.safetensors"}));
    assert_eq!(open(&directory).unwrap().entries().len(), 1);
    fs::create_dir(directory.join("folder.safetensors")).unwrap();
    write_index(&directory, json!({"a": "folder.safetensors"}));
    assert!(message(&directory).contains("is not a regular file"));
}

#[test]
fn tensors_of_the_index_must_exist() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path();
    write_small_model(directory);
    assert_eq!(open(directory).unwrap().entries().len(), 3);
    write_index(directory, json!({"a": SHARDS[0], "c": SHARDS[0]}));
    let text = message(directory);
    assert!(
        text.contains(SHARDS[0]) && text.contains("lacks the tensor `c`"),
        "{text}"
    );
    write_index(
        directory,
        json!({"a": SHARDS[0], "c": "model-00003-of-00003.safetensors"}),
    );
    let text = message(directory);
    assert!(
        text.contains("lacks the shard `model-00003-of-00003.safetensors`"),
        "{text}"
    );
    let twice = format!(r#"{{"weight_map": {{"a": "{0}", "a": "{0}"}}}}"#, SHARDS[0]);
    fs::write(directory.join(INDEX), twice).unwrap();
    assert!(message(directory).contains("\"a\" occurs twice"));
    fs::write(directory.join(INDEX), r#"{"metadata": {}}"#).unwrap();
    assert!(message(directory).contains("missing field `weight_map`"));
    fs::remove_file(directory.join(INDEX)).unwrap();
    fs::write(directory.join("pytorch_model.bin"), "").unwrap();
    assert!(message(directory).contains("convert its pytorch_model.bin"));
}

#[test]
fn wrong_lengths_are_reported_with_both_values() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path();
    write_small_model(directory);
    let path = directory.join(SHARDS[0]);
    let good = fs::read(&path).unwrap();
    let with_length = |length: u64| [&length.to_le_bytes(), &good[8..]].concat();
    let size = good.len();
    let cases = [
        (
            good[..5].to_vec(),
            "it has 5 bytes, at least 8 are needed".to_owned(),
        ),
        (
            good[..40].to_vec(),
            "the file has 40; copy or download it again".to_owned(),
        ),
        (
            good[..size - 3].to_vec(),
            "describes 58 bytes of data, the file holds 55".to_owned(),
        ),
        (
            [&good[..], &[0]].concat(),
            "describes 58 bytes of data, the file holds 59".to_owned(),
        ),
        (
            with_length(size as u64 - 7),
            format!("{} bytes, the file has {size}", size - 7),
        ),
        (
            with_length(100_000_001),
            "states a length of 100000001 bytes, at most 100000000".to_owned(),
        ),
        (
            with_length(u64::MAX),
            format!("states a length of {} bytes, at most", u64::MAX),
        ),
        (with_length(0), "its header is not valid".to_owned()),
    ];
    for (bytes, expected) in cases {
        fs::write(&path, bytes).unwrap();
        let text = message(directory);
        assert!(
            text.contains(&expected) && text.contains(SHARDS[0]),
            "{expected}\n{text}"
        );
    }
    // A file that shrinks after its header was checked.
    fs::write(&path, &good).unwrap();
    let store = open(directory).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(size as u64 - 3).unwrap();
    let error = store.read_tensor_f32("b", &mut [0.0; 5]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("ended while tensor `b` was read"),
        "{error}"
    );
}

#[test]
fn directories_without_a_model_are_refused_with_a_remedy() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path();
    assert!(message(directory).contains("has no config.json"));
    fs::write(directory.join("adapter_config.json"), "{}").unwrap();
    assert!(message(directory).contains("give it as --adapter"));
    fs::write(directory.join("config.json"), "[1]").unwrap();
    assert!(message(directory).contains("expected an object"));
    fs::write(directory.join("config.json"), "[".repeat(100_000)).unwrap();
    assert!(message(directory).contains("recursion limit"));
    fs::write(directory.join("config.json"), "{}").unwrap();
    assert!(message(directory).contains("has no model.safetensors or"));
    let model = ModelDirectory::open_with(&HubCache::at("no-cache"), directory).unwrap();
    assert!(
        model
            .tokenizer()
            .unwrap_err()
            .to_string()
            .contains("has no tokenizer.json")
    );
    let adapter = AdapterDirectory::open_with(&HubCache::at("no-cache"), directory).unwrap_err();
    assert!(
        adapter
            .to_string()
            .contains("has no adapter_model.safetensors"),
        "{adapter}"
    );
    let file = open(&directory.join("config.json")).unwrap_err();
    assert!(file.to_string().contains("is not a directory"), "{file}");
    assert_eq!(file.exit_class().code(), 2);
}

/// A cached repository `org/name` in the layout of the hub's tools: links into `blobs`.
fn write_cache(root: &Path) -> PathBuf {
    let repository = root.join("models--org--name");
    let snapshot = repository.join("snapshots/0123abcd");
    write_small_model(&repository.join("blobs"));
    fs::create_dir_all(&snapshot).unwrap();
    for name in [SHARDS[0], SHARDS[1], INDEX, "config.json"] {
        symlink(Path::new("../../blobs").join(name), snapshot.join(name)).unwrap();
    }
    fs::create_dir_all(repository.join("refs")).unwrap();
    fs::write(repository.join("refs/main"), "0123abcd").unwrap();
    snapshot
}

#[test]
fn a_repository_id_is_found_in_the_cache_or_refused_with_a_remedy() {
    let temp = tempfile::tempdir().unwrap();
    let cache = HubCache::at(temp.path());
    let open = |id: &str| ModelDirectory::open_with(&cache, Path::new(id));
    let absent = open("org/name").unwrap_err();
    assert!(
        absent
            .to_string()
            .contains("download it with `hf download org/name`"),
        "{absent}"
    );
    assert_eq!(absent.exit_class().code(), 2);

    let snapshot = write_cache(temp.path());
    let model = open("org/name").unwrap();
    assert_eq!(model.path(), snapshot);
    assert_eq!(model.tensors().unwrap().entries().len(), 3);

    // Links of a snapshot must point to its own blobs.
    fs::write(temp.path().join("secret"), "{}").unwrap();
    fs::remove_file(snapshot.join("config.json")).unwrap();
    symlink("../../../secret", snapshot.join("config.json")).unwrap();
    assert!(
        open("org/name")
            .unwrap_err()
            .to_string()
            .contains("outside its directory")
    );
    let refs = temp.path().join("models--org--name/refs/main");
    for (revision, expected) in [("ffff", "no snapshots/ffff"), ("../..", "no revision")] {
        fs::write(&refs, revision).unwrap();
        let error = open("org/name").unwrap_err().to_string();
        assert!(
            error.contains(expected) && error.contains("hf download org/name"),
            "{error}"
        );
    }
}

/// Reads everything; an error is valid, a panic is not.
fn read_all(directory: &Path) -> Result<usize, FileError> {
    let store = open(directory)?;
    for entry in store.entries() {
        let bytes = entry.bytes.end - entry.bytes.start;
        assert!(bytes < 1 << 20, "{entry:?} is larger than its file");
        store.read_tensor_bytes(&entry.name, &mut vec![0; bytes as usize])?;
        if entry.elements() <= bytes {
            match store.read_tensor_f32(&entry.name, &mut vec![0.0; entry.elements() as usize]) {
                Ok(()) | Err(FileError::NotFloat { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(store.entries().len())
}

/// Writes a new file: some file systems sync when an old one is overwritten.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// The peak memory of this process, in bytes; 0 if the system does not report it.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[test]
fn damaged_files_are_errors_and_never_panics() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path();
    write_small_model(directory);
    let files = [SHARDS[0], SHARDS[1], INDEX, "config.json"];
    let originals = files.map(|name| fs::read(directory.join(name)).unwrap());
    let peak_before = peak_bytes();
    let mut dice = Dice(20_240_501);
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..800 {
        // The shards twice as often: they have the most fields to damage.
        let which = [0, 0, 1, 1, 2, 3][dice.below(6)];
        let bytes = damaged(&originals[which], &mut dice);
        let path = directory.join(files[which]);
        replace(&path, &bytes);
        match read_all(directory) {
            Ok(_) => accepted += 1,
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
        if which < 2 {
            agrees_with_the_format(round, &path, &bytes);
        }
        fs::write(&path, &originals[which]).unwrap();
    }
    assert!(
        accepted > 50 && refused > 300,
        "{accepted} accepted, {refused} refused"
    );
    let grown = peak_bytes().saturating_sub(peak_before);
    assert!(
        grown < 64 << 20,
        "damaged files of a few hundred bytes took {grown} bytes"
    );
}

/// Files that we accept are accepted by the format's own reader. Files that only we refuse have a
/// repeated or unprintable name.
fn agrees_with_the_format(round: usize, path: &Path, bytes: &[u8]) {
    match (TensorStore::open(path), SafeTensors::deserialize(bytes)) {
        (Ok(_), Err(theirs)) => panic!("round {round}: we accept, but {theirs}"),
        (Err(ours), Ok(_)) => {
            let text = ours.to_string();
            let stricter = matches!(ours, FileError::TensorName { .. }) || text.contains("twice");
            assert!(stricter, "round {round}: the format accepts, but {text}");
        }
        _ => {}
    }
}
