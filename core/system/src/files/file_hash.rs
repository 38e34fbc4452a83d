//! A file -> its size and SHA-256, streamed, for the record of a run.

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::FileError;
use super::file_kind::FileKind;
use super::regular_file::open_regular;

/// The size and hash of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHash {
    /// The file's name, without its directory.
    pub file: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// SHA-256 of its content, 64 lower-case hexadecimal digits.
    pub sha256: String,
}

/// Bytes read at once: small, since a run hashes its files just before its memory is at its peak.
const CHUNK_BYTES: usize = 64 << 10;

/// Hashes the file `path` in small parts.
pub fn hash_file(path: &Path) -> Result<FileHash, FileError> {
    let (mut file, _) = open_regular(path, FileKind::Content).map_err(|error| error.of(path))?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    loop {
        let count = file.read(&mut chunk).map_err(|source| FileError::Read {
            path: path.to_owned(),
            source,
        })?;
        if count == 0 {
            break;
        }
        hasher.update(&chunk[..count]);
        bytes += count as u64;
    }
    let file = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let sha256 = hexadecimal(&hasher.finalize());
    Ok(FileHash {
        file,
        bytes,
        sha256,
    })
}

/// SHA-256 of `bytes`, 64 lower-case hexadecimal digits.
pub fn hash_bytes(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// SHA-256 of `value` as JSON, which is streamed.
///
/// # Panics
/// Where `value` is no plain data, such as a map with keys that are not text.
pub fn hash_json(value: &impl Serialize) -> String {
    let mut hasher = Sha256::new();
    serde_json::to_writer(&mut hasher, value).expect("plain data");
    hexadecimal(&hasher.finalize())
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
