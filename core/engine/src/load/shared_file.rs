//! A file of zeros that the processes of a machine map. It is freed with the last of them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::io::Errno;

/// The file's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// In memory, without a name: others open it through the process that made it.
    Memory,
    /// In the folder of temporary files, where processes cannot see each other.
    Folder,
}

/// A file that was made to be mapped by several processes. It loses its name when it is dropped.
pub(super) struct SharedFile {
    file: File,
    path: PathBuf,
    _name: Option<tempfile::TempPath>,
}

impl SharedFile {
    /// A file of `bytes` zeros. Its pages are reserved: a process that touches a page without
    /// memory for it is killed.
    ///
    /// # Errors
    /// The error of the operating system, such as no space left.
    pub(super) fn create(home: Home, bytes: u64) -> io::Result<Self> {
        let made = match home {
            Home::Memory => {
                let file = File::from(memfd_create("espalier-weights", MemfdFlags::CLOEXEC)?);
                let path = format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd());
                SharedFile {
                    file,
                    path: path.into(),
                    _name: None,
                }
            }
            Home::Folder => {
                let made = tempfile::Builder::new()
                    .prefix("espalier-weights-")
                    .tempfile()?;
                let (file, name) = made.into_parts();
                SharedFile {
                    file,
                    path: name.to_path_buf(),
                    _name: Some(name),
                }
            }
        };
        match fallocate(&made.file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => made.file.set_len(bytes)?,
            other => other?,
        }
        Ok(made)
    }

    /// The path by which other processes open it, valid until this is dropped.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens the file of `bytes` bytes that another process made at `path`.
///
/// # Errors
/// The error of the operating system; a file of another length.
pub(super) fn open(path: &Path, bytes: u64) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let found = file.metadata()?.len();
    if found == bytes {
        Ok(file)
    } else {
        Err(io::Error::other(format!(
            "it has {found} bytes, expected {bytes}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::super::HostRegion;
    use super::*;

    #[test]
    fn both_kinds_are_one_memory_for_all_who_map_them() {
        for home in [Home::Memory, Home::Folder] {
            let made = SharedFile::create(home, HostRegion::mapped_bytes(5000)).expect("room");
            let path = made.path().to_owned();
            let opened = open(&path, HostRegion::mapped_bytes(5000)).expect("by its path");
            let mapped = HostRegion::of_file(&opened, 5000).expect("mapped");
            let wrong = open(&path, 5000).expect_err("another length");
            assert!(wrong.to_string().contains("has 5064 bytes"), "{wrong}");
            drop(made);
            assert!(!path.exists(), "{home:?} leaves {}", path.display());
            opened.write_all_at(&[7; 3], 4997).expect("written");
            mapped.clear(4998..5000);
            let mut found = [1; 4];
            opened.read_exact_at(&mut found, 4996).expect("read");
            assert_eq!(found, [0, 7, 0, 0], "{home:?}");
        }
    }
}
