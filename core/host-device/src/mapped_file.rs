//! A folder -> memory backed by an unnamed file in it. Its pages can leave memory; the file is
//! deleted when it is unmapped.
#![allow(unsafe_code)] // Mapping a file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use espalier_interface::{ErrorCode, PluginError, Result};
use memmap2::MmapMut;
use rustix::fs::{FallocateFlags, fallocate, fstatfs};
use rustix::io::Errno;

/// File systems in memory, by `f_type`. Source: statfs(2).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// The default folder: that of temporary files where the environment names one, else the system's
/// folder for large and lasting ones, which is on disk. Source: file-hierarchy(7).
pub fn default_folder() -> PathBuf {
    let named = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty());
    named.map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// `len` bytes of zeros; `backend` names the option in errors.
///
/// # Errors
/// `OUT_OF_MEMORY` where the folder has no room; `UNSUPPORTED` for a folder in memory.
pub fn zeros(backend: &str, folder: &Path, len: usize) -> Result<MmapMut> {
    let failed = |error: io::Error| refused(folder, len, &error.to_string());
    let file = tempfile::tempfile_in(folder).map_err(failed)?;
    let kind = fstatfs(&file).map_err(|error| failed(error.into()))?.f_type as u64;
    if IN_MEMORY.contains(&kind) {
        let message = format!(
            "{} is in memory: name a folder on a disk with backend.{backend}.mapped_dir",
            folder.display()
        );
        return Err(PluginError::new(ErrorCode::UNSUPPORTED, message));
    }
    reserve(&file, len as u64).map_err(failed)?;
    // SAFETY: the file has no name, so no other process changes or shortens it while it is mapped.
    unsafe { MmapMut::map_mut(&file) }.map_err(failed)
}

/// Reserves the file's length on the disk: a write to a page without room would end the process.
fn reserve(file: &File, len: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => io::copy(
            &mut io::Read::take(io::repeat(0), len),
            &mut io::BufWriter::with_capacity(1 << 20, file),
        )
        .map(drop),
        other => Ok(other?),
    }
}

fn refused(folder: &Path, len: usize, why: &str) -> PluginError {
    let message = format!(
        "a mapped file of {len} bytes in {}: {why}",
        folder.display()
    );
    PluginError::new(ErrorCode::OUT_OF_MEMORY, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_file_is_zeros_without_a_name() {
        // A test's own program is on a disk.
        let program = std::env::current_exe().expect("a test is a file");
        let folder = program.parent().expect("it has a parent folder");
        let mut map = zeros("cpu", folder, 5000).expect("room for a page or two");
        assert!(map.len() == 5000 && map.iter().all(|byte| *byte == 0));
        map[4999] = 7;
        assert_eq!(map[4999], 7);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = zeros("cpu", Path::new("/no/such/folder"), 10).expect_err("no folder");
        assert_eq!(error.code, ErrorCode::OUT_OF_MEMORY);
        assert!(error.message.contains("/no/such/folder"), "{error}");
    }
}
