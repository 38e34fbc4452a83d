//! The folder that this process writes its inputs to, and the fixtures beside them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;

/// The folder, filled by `fill` at its first use.
pub fn place(fill: impl FnOnce(&Path)) -> &'static Path {
    static PLACE: OnceLock<TempDir> = OnceLock::new();
    let made = || {
        let place = tempfile::tempdir().expect("a folder in TMPDIR");
        fill(place.path());
        place
    };
    PLACE.get_or_init(made).path()
}

/// The tiny model's directory.
pub fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/llama/tiny")
}

/// Copies the tiny model except the file `name` into `folder`.
pub fn copy_tiny_without(folder: &Path, name: &str) {
    for entry in fs::read_dir(tiny()).expect("the tiny model") {
        let entry = entry.expect("an entry");
        if entry.file_name() == name {
            continue;
        }
        // A link that points outside a model's folder is refused.
        let to = folder.join(entry.file_name());
        fs::copy(entry.path(), to).expect("a copy");
    }
}

/// Writes `bytes` to a new file: some file systems sync when an old one is overwritten.
pub fn write(path: &Path, bytes: &[u8]) {
    // It does not exist at first.
    let _ = fs::remove_file(path);
    fs::write(path, bytes).expect("a folder that can be written to");
}

/// An input of two parts: the bytes before the first zero byte, and after it.
pub fn parts(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|&byte| byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[]),
    }
}

/// An input of two parts: its first line, and the rest.
pub fn first_line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|&byte| byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[]),
    }
}
