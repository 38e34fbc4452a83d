//! Contents of a disk -> their digest, and the same contents on a real disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

/// Contents of a disk: bytes of files by path, `None` for directories.
pub type State = BTreeMap<String, Option<Vec<u8>>>;

/// A digest of a state.
pub fn digest(state: &State) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (path, content) in state {
        hash.update(path);
        hash.update(match content {
            Some(bytes) => [b"\0file\0".as_slice(), &bytes.len().to_le_bytes()].concat(),
            None => b"\0directory\0".to_vec(),
        });
        hash.update(content.as_deref().unwrap_or_default());
    }
    hash.finalize().into()
}

/// Writes `state` to a real disk, below `folder`.
///
/// # Panics
/// If there is no room.
pub fn put(state: &State, folder: &Path) {
    fs::create_dir_all(folder).expect("created");
    for (path, content) in state {
        match content {
            None => fs::create_dir_all(folder.join(path)).expect("created"),
            Some(bytes) => fs::write(folder.join(path), bytes).expect("written"),
        }
    }
}
