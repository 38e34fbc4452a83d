//! A library's bytes -> a file that a host opens: other users cannot write it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes a library like linkers and package managers do: as a new file that replaces an older one,
/// which may be open.
///
/// # Panics
/// If it cannot be written.
pub fn put(path: &Path, bytes: &[u8]) {
    let beside = path.with_extension("new");
    fs::write(&beside, bytes).expect("room for a library");
    fs::set_permissions(&beside, Permissions::from_mode(0o755)).expect("our own file");
    fs::rename(&beside, path).expect("the same folder");
}
