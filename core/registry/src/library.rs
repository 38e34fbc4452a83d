//! A plugin's library file -> its descriptor, read without running code, and its tables, checked
//! before use.

mod access;
mod descriptor;
mod doing;
mod fault;
mod mapping;
mod opened;
mod root;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use espalier_interface::abi::descriptor::Descriptor;
pub(crate) use espalier_interface::abi::is_served;

use opened::Content;

pub use doing::Doing;
pub use fault::{LibraryError, LibraryFault, Writers};
pub use root::Root;

static OPENED: OnceLock<fn()> = OnceLock::new();

/// Sets a function that is called each time a library was opened. The first one set stays.
pub fn on_opened(callback: fn()) {
    let _ = OPENED.set(callback);
}

/// A library was opened.
fn notify_opened() {
    if let Some(callback) = OPENED.get() {
        callback();
    }
}

/// Whether libraries that other users may write or replace are opened.
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
    /// Its descriptor, where that can be read.
    pub descriptor: Option<Descriptor>,
    /// Why it cannot be used.
    pub fault: Option<LibraryFault>,
}

impl LibraryFile {
    /// Inspects a file without running it. Errors become its `fault`.
    pub fn inspect(path: &Path, world_writable: WorldWritable) -> Self {
        // `dlopen` takes a path without a `/` for a name to look up elsewhere.
        let absolute = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut file = LibraryFile {
            path: absolute,
            sha256: String::new(),
            descriptor: None,
            fault: None,
        };
        let content = match Content::read(&file.path) {
            Ok(content) => content,
            Err(error) => {
                file.fault = Some(LibraryFault::Unreadable(error.to_string()));
                return file;
            }
        };
        match descriptor::read(&content.bytes) {
            Ok(descriptor) => {
                file.fault = descriptor::check(&descriptor).err();
                file.descriptor = Some(descriptor);
            }
            Err(fault) => file.fault = Some(fault),
        }
        if world_writable == WorldWritable::Refused && file.fault.is_none() {
            let metadata = content.file.metadata();
            let metadata = metadata.map_err(|error| LibraryFault::Unreadable(error.to_string()));
            let checked = metadata.and_then(|metadata| access::check(path, &metadata));
            file.fault = checked.err();
        }
        file.sha256 = content.sha256;
        file
    }

    /// Gives the file a fault where `pins`, hashes by plugin, allow another library or none.
    /// Without pins every library is allowed.
    pub(crate) fn hold_to(&mut self, pins: &BTreeMap<String, String>) {
        let (None, Some(descriptor)) = (&self.fault, &self.descriptor) else {
            return;
        };
        let (plugin, found) = (descriptor.name.clone(), self.sha256.clone());
        self.fault = match pins.get(&plugin) {
            Some(expected) if *expected == found => None,
            Some(expected) => Some(LibraryFault::Pinned {
                plugin,
                expected: expected.clone(),
                found,
            }),
            None if pins.is_empty() => None,
            None => Some(LibraryFault::Unpinned { plugin, found }),
        };
    }

    /// Opens the library and checks its tables. The opened bytes are the hashed ones. A library is
    /// never closed; one that was rebuilt meanwhile is loaded beside the older one.
    ///
    /// # Errors
    /// [`LibraryError`] with its fault, or where it changed since it was inspected, cannot be
    /// opened or has another layout.
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
        let content = Content::read(&self.path)
            .map_err(|error| fail(LibraryFault::Unreadable(error.to_string())))?;
        if content.sha256 != self.sha256 {
            return Err(fail(LibraryFault::Changed {
                expected: self.sha256.clone(),
                found: content.sha256,
            }));
        }
        let place = content.place(&self.path).map_err(fail)?;
        root::open(place, descriptor).map_err(fail)
    }
}

/// The descriptor in a library's bytes, where this host can talk to the plugin.
pub(crate) fn described(library: &[u8]) -> Result<Descriptor, LibraryFault> {
    let descriptor = descriptor::read(library)?;
    descriptor::check(&descriptor)?;
    Ok(descriptor)
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
