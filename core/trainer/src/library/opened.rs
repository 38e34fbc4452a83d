//! A library's path -> the path to open it by: its own, or that of a private copy where this process holds an older one.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, memfd_create};

/// Paths that were opened, each with the hash of what lay there.
static OPENED: LazyLock<Mutex<HashMap<PathBuf, String>>> = LazyLock::new(Mutex::default);

/// Where the library of hash `sha256` and content `bytes`, which lies at `path`, can be opened.
///
/// The dynamic linker knows a library by its path, and would give the older one again where it was rebuilt. A private
/// copy has no path that an older one had: it is an unnamed file in memory, whose descriptor is never closed.
///
/// # Errors
/// Where the copy cannot be made.
pub(super) fn place(path: &Path, sha256: &str, bytes: &[u8]) -> std::io::Result<PathBuf> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let first = opened
        .entry(path.to_owned())
        .or_insert_with(|| sha256.to_owned());
    if first == sha256 {
        return Ok(path.to_owned());
    }
    let copy = memfd_create("espalier-plugin", MemfdFlags::CLOEXEC)?;
    let mut copy = File::from(copy);
    copy.write_all(bytes)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", copy.as_raw_fd()));
    let _ = copy.into_raw_fd();
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_content_at_the_same_path_is_opened_from_a_copy() {
        let path = Path::new("/no/such/place.so");
        let placed = |hash: &str, bytes: &[u8]| place(path, hash, bytes).expect("memory");
        assert_eq!(placed("a", b"one"), path);
        assert_eq!(placed("a", b"one"), path);
        let (second, third) = (placed("b", b"two"), placed("c", b"three"));
        assert_ne!(second, third);
        assert_eq!(std::fs::read(second).expect("a copy"), b"two");
        assert_eq!(placed("a", b"one"), path);
    }
}
