//! The bytes of a shared library that another one holds -> the library, opened in this process.

use std::error::Error;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::{fs, io};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Opens the library with these bytes; `name` is that of its sealed copy in memory. It is never
/// closed.
///
/// # Errors
/// A sentence: it cannot be copied, or the dynamic linker's own words.
///
/// # Safety
/// Its initialisers run, and what it names is open or can be found.
#[allow(unsafe_code)] // Opening a library.
pub unsafe fn open(name: &str, bytes: &[u8]) -> Result<ManuallyDrop<Library>, String> {
    let copy = copy(name, bytes);
    let copy = copy.map_err(|error| format!("cannot be copied to memory: {error}"))?;
    let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
    // SAFETY: the caller's promise.
    let library = unsafe { open_file(Path::new(&path)) };
    let library = library.map_err(|error| format!("cannot be opened: {error}"))?;
    // The dynamic linker knows a library by its path too: the number must not be given again.
    let _ = ManuallyDrop::new(copy);
    Ok(library)
}

/// Opens the library at `path`, which is never closed.
///
/// # Errors
/// The dynamic linker's own words, in one line.
///
/// # Safety
/// As [`open`].
#[allow(unsafe_code)] // Opening a library.
pub unsafe fn open_file(path: &Path) -> Result<ManuallyDrop<Library>, String> {
    // SAFETY: the caller's promise.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    library
        .map(ManuallyDrop::new)
        .map_err(|error| cause(&error))
}

/// The bytes as a sealed file in memory.
fn copy(name: &str, bytes: &[u8]) -> io::Result<fs::File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut copy = fs::File::from(memfd_create(name, flags)?);
    copy.write_all(bytes)?;
    let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&copy, all)?;
    Ok(copy)
}

/// The first line of an error's innermost cause.
fn cause(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => cause(source),
        None => error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    }
}
