//! Data files in a temporary directory and the tiny model's tokenizer, for tests of rows.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_data::{DataError, DataOptions, Dataset, Vocabulary};
use tempfile::TempDir;

use crate::{Golden, golden_path};

/// Rows of the tiny model's embedding.
pub const VOCAB_SIZE: usize = 512;
/// Its end token.
pub const END: i32 = 1;

/// The tiny model's directory.
pub fn tiny() -> PathBuf {
    golden_path("llama/tiny")
}

/// Its vocabulary.
pub fn vocabulary() -> Vocabulary {
    Vocabulary::new(tiny(), VOCAB_SIZE)
}

/// The golden evaluation rows as a data file.
pub fn golden_rows() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a place to write");
    let path = directory.path().join("rows.jsonl");
    let rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
    let lines = rows
        .iter()
        .map(|row| format!("{}\n", serde_json::json!({ "input_ids": row })));
    fs::write(&path, lines.collect::<String>()).expect("a place to write");
    (directory, path)
}

/// A directory with one data file.
pub struct Files {
    /// Removed with it.
    pub directory: TempDir,
    /// The file.
    pub path: PathBuf,
}

/// Writes a data file.
///
/// # Panics
/// If it cannot be written.
pub fn file(name: &str, content: impl AsRef<[u8]>) -> Files {
    let directory = tempfile::tempdir().expect("a place to write");
    let path = directory.path().join(name);
    fs::write(&path, content).expect("a place to write");
    Files { directory, path }
}

/// The options that read it in file order.
pub fn options(path: &Path) -> DataOptions {
    DataOptions {
        files: vec![path.to_path_buf()],
        shuffle: false,
        ..DataOptions::default()
    }
}

/// Loads the files of the options.
///
/// # Errors
/// The first fault.
pub fn load(options: &DataOptions) -> Result<Dataset, DataError> {
    Dataset::open(options, &vocabulary(), 42, &mut |_| ()).map(|(train, _)| train)
}

/// Loads `content`, changing the options first.
///
/// # Errors
/// The first fault as text, without the directory.
pub fn read(
    name: &str,
    content: impl AsRef<[u8]>,
    change: impl FnOnce(&mut DataOptions),
) -> Result<Dataset, String> {
    let files = file(name, content);
    let mut options = options(&files.path);
    change(&mut options);
    let directory = format!("{}/", files.directory.path().display());
    load(&options).map_err(|e| e.to_string().replace(&directory, ""))
}

/// Why `content` is refused.
///
/// # Panics
/// If it is not.
pub fn refused(name: &str, content: impl AsRef<[u8]>) -> String {
    read(name, content, |_| ()).err().expect("refused")
}

/// A copy of the tiny model's directory without weights, with one file replaced or (without
/// content) removed.
///
/// # Panics
/// If it cannot be written.
pub fn model_with(name: &str, content: Option<&str>) -> TempDir {
    let directory = tempfile::tempdir().expect("a place to write");
    for file in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        fs::copy(tiny().join(file), directory.path().join(file)).expect("a place to write");
    }
    match content {
        Some(content) => fs::write(directory.path().join(name), content).expect("a place to write"),
        None => fs::remove_file(directory.path().join(name)).expect("a place to write"),
    }
    directory
}
