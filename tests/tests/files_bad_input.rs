//! Model files that are truncated, lying or hostile: each a clear error, never a panic.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use espalier_interface::DType;
use espalier_system::failure::Failure;
use espalier_system::files::{
    AdapterDirectory, FileError, HubCache, ModelDirectory, TensorSpec, TensorStore,
    write_safetensors,
};
use safetensors::SafeTensors;
use serde_json::json;

const SHARDS: [&str; 2] = [
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
];
const INDEX: &str = "model.safetensors.index.json";

/// A small model of two shards: `a` and `b` in the first, `c` in the second.
fn write_small_model(directory: &Path) {
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

fn write_index(directory: &Path, weight_map: serde_json::Value) {
    let index = json!({"metadata": {"total_size": 66}, "weight_map": weight_map});
    fs::write(directory.join(INDEX), index.to_string()).unwrap();
}

fn open(directory: &Path) -> Result<TensorStore, FileError> {
    ModelDirectory::open_with(&HubCache::at("no-cache"), directory)?.tensors()
}

fn message(directory: &Path) -> String {
    let error = open(directory).expect_err("bad input");
    assert_eq!(error.exit_class().code(), 4, "{error}");
    error.to_string()
}

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
    // A link that stays inside is a file like any other.
    symlink(SHARDS[0], directory.join("inside.safetensors")).unwrap();
    write_index(&directory, json!({"a": "inside.safetensors"}));
    assert_eq!(open(&directory).unwrap().entries().len(), 1);
    fs::create_dir(directory.join("folder.safetensors")).unwrap();
    write_index(&directory, json!({"a": "folder.safetensors"}));
    assert!(message(&directory).contains("is not a regular file"));
}

#[test]
fn what_the_index_promises_must_be_there() {
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
    assert!(message(directory).contains("\"a\" stands twice"));
    fs::write(directory.join(INDEX), r#"{"metadata": {}}"#).unwrap();
    assert!(message(directory).contains("missing field `weight_map`"));
    fs::remove_file(directory.join(INDEX)).unwrap();
    fs::write(directory.join("pytorch_model.bin"), "").unwrap();
    assert!(message(directory).contains("convert its pytorch_model.bin"));
}

#[test]
fn lengths_that_lie_are_told_with_both_values() {
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
            "said to have 100000001 bytes, at most 100000000".to_owned(),
        ),
        (
            with_length(u64::MAX),
            format!("said to have {} bytes, at most", u64::MAX),
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
fn directories_that_are_no_models_say_what_to_do() {
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

/// A cached repository `org/name` as the hub's tools lay it out: links into `blobs`.
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
fn a_repository_id_is_found_in_the_cache_or_said_how_to_get() {
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

    // Links of a snapshot lead to its own blobs only.
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

/// splitmix64 (Steele, Lea, Flood 2014): enough to choose where to damage a file.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

const EXTREME_LENGTHS: [u64; 10] = [
    0,
    1,
    7,
    8,
    1 << 16,
    99_999_999,
    100_000_001,
    1 << 32,
    1 << 63,
    u64::MAX,
];
const EXTREME_NUMBERS: [&str; 9] = [
    "0",
    "1",
    "-1",
    "1e3",
    "2.5",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999999",
];

/// `bytes` with one kind of damage.
fn damaged(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let (from, to) = (dice.below(bytes.len()), dice.below(bytes.len()));
    match dice.below(6) {
        0 => {
            for _ in 0..=dice.below(4) {
                let at = dice.below(bytes.len());
                bytes[at] ^= 1 << dice.below(8);
            }
        }
        1 => bytes.truncate(from),
        2 => {
            let piece = bytes[from.min(to)..from.max(to)].to_vec();
            let at = dice.below(bytes.len());
            bytes.splice(at..at, piece);
        }
        3 => drop(bytes.drain(from.min(to)..from.max(to))),
        4 if bytes.len() >= 8 => {
            let length = match dice.below(3) {
                0 => (bytes.len() as u64).wrapping_sub(dice.below(17) as u64),
                _ => EXTREME_LENGTHS[dice.below(EXTREME_LENGTHS.len())],
            };
            bytes[..8].copy_from_slice(&length.to_le_bytes());
        }
        _ => replace_number(&mut bytes, dice),
    }
    bytes
}

/// Puts an extreme number in the place of one that stands in the JSON, and keeps the length field
/// right, so that the lie is found where the numbers are checked.
fn replace_number(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let digit = |byte: &u8| byte.is_ascii_digit();
    let starts: Vec<usize> = (9..bytes.len())
        .filter(|&at| digit(&bytes[at]) && matches!(bytes[at - 1], b'[' | b',' | b' ' | b':'))
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = starts[dice.below(starts.len())];
    let end = start + bytes[start..].iter().take_while(|byte| digit(byte)).count();
    let number = EXTREME_NUMBERS[dice.below(EXTREME_NUMBERS.len())].as_bytes();
    let grown = number.len() as u64;
    let shrunk = (end - start) as u64;
    bytes.splice(start..end, number.iter().copied());
    if bytes[0] != b'{' {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        bytes[..8].copy_from_slice(&(length + grown - shrunk).to_le_bytes());
    }
}

/// Reads everything there is to read; both outcomes are fine, a panic is not.
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

/// Writes a new file: some file systems go to the disk when an old one is written anew.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// The most memory this process ever had, in bytes; 0 where the system does not tell.
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
        // The shards twice as often: they have the most to get wrong.
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

/// What we accept the format's own reader accepts; what we refuse beyond it is a repeated name or
/// one that cannot be printed.
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
