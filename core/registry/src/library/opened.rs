//! A library's bytes -> a path that opens exactly these bytes.
//!
//! The hashed bytes are the ones that run. They go into a private copy that cannot be changed, one
//! per hash, so that nothing is loaded twice. The dynamic linker identifies a library by its path,
//! and each copy has a path of its own. A library that searches its own folder (`$ORIGIN`) is
//! opened at its path; then the mapping is compared with the file that was hashed.
#![allow(unsafe_code)] // A mapping of the file that was hashed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use espalier_system::files::{FileKind, Unopened, hash_bytes, open_regular};
use memmap2::{Mmap, MmapOptions};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::descriptor;
use super::fault::LibraryFault;
use super::mapping::file_at;

/// Most bytes of the name of a file in memory.
const NAME: usize = 200;

/// The libraries that were opened so far.
static OPENED: LazyLock<Mutex<Opened>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Opened {
    /// Paths of private copies, by hash.
    copies: HashMap<String, PathBuf>,
    /// Libraries that were opened at their paths.
    originals: Vec<Original>,
}

/// A library that was opened at its path.
struct Original {
    path: PathBuf,
    sha256: String,
    /// Kept open, so that its inode is not given to another.
    file: File,
}

/// A library's file, read once: hash and descriptor are of these bytes.
pub(super) struct Content {
    pub file: File,
    pub bytes: Mmap,
    pub sha256: String,
}

/// A library's bytes at a path by which they can be opened.
pub(super) struct PlacedLibrary {
    /// The path for the dynamic linker.
    pub path: PathBuf,
    /// The file that was hashed and its hash, where the path could name another file.
    original: Option<(File, String)>,
}

impl Content {
    /// Reads the library at `path`.
    ///
    /// # Errors
    /// As [`open_regular`]; an error also where the file's length changes meanwhile.
    pub fn read(path: &Path) -> Result<Self, Unopened> {
        let (mut file, size) = open_regular(path, FileKind::Library)?;
        let bytes = read_mapped(&mut file, size as usize)?;
        let sha256 = hash_bytes(&bytes);
        Ok(Content {
            file,
            bytes,
            sha256,
        })
    }

    /// Makes these bytes, which were read from `path`, available at a path.
    ///
    /// # Errors
    /// [`LibraryFault::Open`] where a copy cannot be made, or a library that needs its own folder
    /// was rewritten in place.
    pub fn place(self, path: &Path) -> Result<PlacedLibrary, LibraryFault> {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: io::Error| LibraryFault::Open(error.to_string());
        if descriptor::names_origin(&self.bytes) {
            return opened.original(path, self);
        }
        let path = match opened.copies.get(&self.sha256) {
            Some(copy) => copy.clone(),
            None => match copy(path, &self.bytes) {
                Ok(copy) => {
                    opened.copies.insert(self.sha256, copy.clone());
                    copy
                }
                // A limit on the size of files also applies to files in memory.
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    return opened.original(path, self);
                }
                Err(error) => return Err(failed(error)),
            },
        };
        Ok(PlacedLibrary {
            path,
            original: None,
        })
    }
}

impl Opened {
    /// The library in its own folder. Where another build was opened by the path, the path is
    /// spelled differently, so that the linker does not confuse the two.
    fn original(&mut self, path: &Path, content: Content) -> Result<PlacedLibrary, LibraryFault> {
        let failed = |error: io::Error| LibraryFault::Open(error.to_string());
        let id = |file: &File| file.metadata().map(|found| (found.dev(), found.ino()));
        let own = id(&content.file).map_err(failed)?;
        let is_same = |one: &Original| id(&one.file).is_ok_and(|other| other == own);
        let rewritten = |one: &Original| is_same(one) && one.sha256 != content.sha256;
        if self.originals.iter().any(rewritten) {
            let message = "it was rewritten in place after this process opened it, expected a new file under its name";
            return Err(LibraryFault::Open(message.to_owned()));
        }
        let of_path: Vec<&Original> = self
            .originals
            .iter()
            .filter(|one| one.path == path)
            .collect();
        let known = of_path.iter().position(|one| is_same(one));
        let index = known.unwrap_or(of_path.len());
        if known.is_none() {
            self.originals.push(Original {
                path: path.to_owned(),
                sha256: content.sha256.clone(),
                file: content.file.try_clone().map_err(failed)?,
            });
        }
        let (folder, name) = (path.parent(), path.file_name().unwrap_or_default());
        let folder = folder.unwrap_or(Path::new("/")).as_os_str().to_owned();
        let mut written = folder;
        for _ in 0..index {
            written.push("/.");
        }
        written.push("/");
        written.push(name);
        Ok(PlacedLibrary {
            path: written.into(),
            original: Some((content.file, content.sha256)),
        })
    }
}

impl PlacedLibrary {
    /// Checks that the library with code at `address`, which was opened here, is the file that was
    /// hashed.
    ///
    /// # Errors
    /// [`LibraryFault::Exchanged`] where the file was replaced or written to.
    /// [`LibraryFault::Open`] where that cannot be checked.
    pub fn check(self, address: usize) -> Result<(), LibraryFault> {
        let Some((mut file, sha256)) = self.original else {
            return Ok(());
        };
        let failed = |error: io::Error| LibraryFault::Open(error.to_string());
        // SAFETY: one page, whose address is looked up and whose content is never read, so it may
        // change.
        let own = unsafe { MmapOptions::new().len(1).map(&file) }.map_err(failed)?;
        let found = file_at(address).map_err(failed)?;
        let expected = file_at(own.as_ptr() as usize).map_err(failed)?;
        let mut bytes = Vec::new();
        file.rewind().map_err(failed)?;
        file.read_to_end(&mut bytes).map_err(failed)?;
        if found.is_some() && found == expected && hash_bytes(&bytes) == sha256 {
            Ok(())
        } else {
            Err(LibraryFault::Exchanged)
        }
    }
}

/// All of `file`, which has `size` bytes, in mapped memory, which the system gets back on drop. The
/// heap would keep some of it, which no plan counts.
fn read_mapped(file: &mut File, size: usize) -> io::Result<Mmap> {
    let mut bytes = MmapOptions::new().len(size).map_anon()?;
    let filled = file.read_exact(&mut bytes);
    let changed = || io::Error::other("it changed while it was read, expected a whole library");
    match filled {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(changed()),
        filled => filled?,
    }
    match file.read(&mut [0])? {
        0 => bytes.make_read_only(),
        _ => Err(changed()),
    }
}

/// A sealed file in memory with `bytes`, which is never closed. Its name in the table of mappings
/// comes from `path`.
fn copy(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let name = String::from_utf8_lossy(&name[..name.len().min(NAME)]).into_owned();
    let file = in_memory(&name)?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    seal(&file)?;
    Ok(PathBuf::from(format!(
        "/proc/self/fd/{}",
        file.into_raw_fd()
    )))
}

/// Refuses all later writes to `file`, which is mapped nowhere.
fn seal(file: &File) -> io::Result<()> {
    let size = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    // `WRITE` fails with EBUSY while the system itself holds a page, to move it for example.
    match fcntl_add_seals(file, size | SealFlags::FUTURE_WRITE) {
        // Systems before Linux 5.1 do not know the flag.
        Err(rustix::io::Errno::INVAL) => Ok(fcntl_add_seals(file, size | SealFlags::WRITE)?),
        sealed => Ok(sealed?),
    }
}

/// Without execute permission as a program, which a system may refuse and a library does not need.
fn in_memory(name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Systems before Linux 6.3 do not know the flag.
        Err(rustix::io::Errno::INVAL) => memfd_create(name, flags),
        made => made,
    };
    Ok(made?)
}

#[cfg(test)]
mod tests;
