//! A plugin's library file -> its descriptor, read without running it, and its tables, checked before they are believed.

mod descriptor;
mod fault;
mod opened;
mod root;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use espalier_interface::abi::descriptor::Descriptor;

use crate::files::{FileKind, hash_bytes, read_regular};

pub use fault::{LibraryError, LibraryFault};
pub use root::Root;

/// Whether libraries that any user may write are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorldWritable {
    /// They are not: another user could run code in this process.
    #[default]
    Refused,
    /// They are.
    Allowed,
}

/// A library file as it was found, before any of its code runs.
#[derive(Clone, Debug)]
pub struct LibraryFile {
    /// Absolute path.
    pub path: PathBuf,
    /// Hash of its bytes, hexadecimal; empty where they cannot be read.
    pub sha256: String,
    /// What it says of itself, where that much can be read.
    pub descriptor: Option<Descriptor>,
    /// Why it cannot be used.
    pub fault: Option<LibraryFault>,
}

impl LibraryFile {
    /// Looks at a file. What is wrong with it becomes its `fault`.
    pub fn inspect(path: &Path, world_writable: WorldWritable) -> Self {
        // `dlopen` takes a path without a `/` for a name to look up elsewhere.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut file = LibraryFile {
            path,
            sha256: String::new(),
            descriptor: None,
            fault: None,
        };
        let bytes = match read_regular(&file.path, FileKind::Library) {
            Ok(bytes) => bytes,
            Err(error) => {
                file.fault = Some(LibraryFault::Unreadable(error.to_string()));
                return file;
            }
        };
        file.sha256 = hash_bytes(&bytes);
        match descriptor::read(&bytes) {
            Ok(descriptor) => {
                file.fault = descriptor::check(&descriptor).err();
                file.descriptor = Some(descriptor);
            }
            Err(fault) => file.fault = Some(fault),
        }
        if world_writable == WorldWritable::Refused && file.fault.is_none() {
            file.fault = permissions(&file.path).err();
        }
        file
    }

    /// Opens the library and checks what it hands over. It is never closed again; one that was rebuilt since this process
    /// opened it stands beside the older one.
    ///
    /// # Errors
    /// Its fault; or that it changed since it was inspected, cannot be opened, or was built otherwise.
    pub fn open(&self) -> Result<Root, LibraryError> {
        let fail = |fault: LibraryFault| LibraryError {
            path: self.path.clone(),
            fault,
        };
        if let Some(fault) = &self.fault {
            return Err(fail(fault.clone()));
        }
        let descriptor = self
            .descriptor
            .as_ref()
            .expect("without a fault there is a descriptor");
        let bytes = read_regular(&self.path, FileKind::Library)
            .map_err(|error| fail(LibraryFault::Unreadable(error.to_string())))?;
        let found = hash_bytes(&bytes);
        if found != self.sha256 {
            let expected = self.sha256.clone();
            return Err(fail(LibraryFault::Changed { expected, found }));
        }
        let place = opened::place(&self.path, &found, &bytes);
        let place = place.map_err(|error| fail(LibraryFault::Open(error.to_string())))?;
        drop(bytes);
        root::open(&place, descriptor).map_err(fail)
    }
}

fn permissions(path: &Path) -> Result<(), LibraryFault> {
    let mode = fs::metadata(path)
        .map_err(|error| LibraryFault::Unreadable(error.to_string()))?
        .permissions()
        .mode();
    match mode & 0o002 {
        0 => Ok(()),
        _ => Err(LibraryFault::WorldWritable {
            mode: mode & 0o7777,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_has_a_fault_and_no_hash() {
        let file = LibraryFile::inspect(Path::new("/no/such/lib.so"), WorldWritable::Refused);
        assert!(matches!(file.fault, Some(LibraryFault::Unreadable(_))));
        assert!(file.sha256.is_empty());
        let message = file.open().err().expect("a fault").to_string();
        assert!(
            message.starts_with("/no/such/lib.so: cannot be read"),
            "{message}"
        );
    }
}
