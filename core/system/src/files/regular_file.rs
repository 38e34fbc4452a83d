//! A path -> the open regular file, within the size limit of its kind, or the reason for refusing
//! it.
//!
//! Paths come from users and from downloaded directories. A pipe could block without end and a
//! device could fill the memory, so only regular files are opened for reading. Every file is opened
//! here.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use espalier_interface::bytes::Bytes;
use rustix::fs::OFlags;

use super::FileError;
use super::file_kind::FileKind;

/// Why a path was not opened as a file of some kind.
#[derive(Debug, thiserror::Error)]
pub enum Unopened {
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a directory, a pipe or a device.
    #[error("{kind} must be a regular file, found {found}")]
    NotRegular {
        /// What it was to be.
        kind: FileKind,
        /// Its type.
        found: &'static str,
    },
    /// It is larger than the limit of its kind.
    #[error("{kind} may have at most {limit}, found {found} bytes")]
    TooLarge {
        /// What it was to be.
        kind: FileKind,
        /// Most bytes.
        limit: Bytes,
        /// Its bytes.
        found: u64,
    },
}

impl Unopened {
    /// True where the path does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Unopened::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// The error of the file `path`.
    pub fn of(self, path: &Path) -> FileError {
        let path = path.to_owned();
        match self {
            Unopened::Io(source) => FileError::Read { path, source },
            Unopened::NotRegular { kind, found } => FileError::NotAFile { path, kind, found },
            Unopened::TooLarge { kind, limit, found } => FileError::TooLarge {
                path,
                kind,
                limit,
                found,
            },
        }
    }
}

impl From<Unopened> for io::Error {
    fn from(error: Unopened) -> Self {
        match error {
            Unopened::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidInput, other),
        }
    }
}

/// Opens the regular file `path` for reading as a `kind`, and returns it with its size in bytes.
/// Never waits for a pipe and never opens a device.
///
/// # Errors
/// A missing path, no permission, a path that is no regular file, a file that is too large.
pub fn open_regular(path: &Path, kind: FileKind) -> Result<(File, u64), Unopened> {
    // Checked before it is opened, since opening a device can have effects, and after, since it can
    // have been replaced.
    fit(&std::fs::metadata(path)?, kind)?;
    let mut options = OpenOptions::new();
    options.read(true);
    // No effect on a regular file; a pipe that replaced it is opened without blocking.
    options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path)?;
    let bytes = fit(&file.metadata()?, kind)?;
    Ok((file, bytes))
}

/// Reads the whole regular file `path`.
///
/// # Errors
/// As [`open_regular`]; a file that grew beyond the limit while it was read.
pub fn read_regular(path: &Path, kind: FileKind) -> Result<Vec<u8>, Unopened> {
    let (file, bytes) = open_regular(path, kind)?;
    let limit = kind.max_bytes();
    let mut content = Vec::with_capacity(bytes as usize);
    file.take(limit + 1).read_to_end(&mut content)?;
    within(content.len() as u64, kind)?;
    Ok(content)
}

/// As [`read_regular`], for a text file.
///
/// # Errors
/// As [`read_regular`]; text that is not UTF-8.
pub fn read_regular_text(path: &Path, kind: FileKind) -> Result<String, Unopened> {
    let content = read_regular(path, kind)?;
    String::from_utf8(content).map_err(|_| {
        let message = "stream did not contain valid UTF-8";
        Unopened::Io(io::Error::new(io::ErrorKind::InvalidData, message))
    })
}

/// The size of a regular file within the limit of `kind`.
fn fit(metadata: &Metadata, kind: FileKind) -> Result<u64, Unopened> {
    if metadata.is_file() {
        within(metadata.len(), kind)
    } else {
        Err(Unopened::NotRegular {
            kind,
            found: described(metadata.file_type()),
        })
    }
}

fn within(found: u64, kind: FileKind) -> Result<u64, Unopened> {
    let limit = Bytes(kind.max_bytes());
    if found <= limit.0 {
        Ok(found)
    } else {
        Err(Unopened::TooLarge { kind, limit, found })
    }
}

/// A file type that is not regular, in words.
pub(super) fn described(file_type: FileType) -> &'static str {
    match file_type {
        other if other.is_dir() => "a directory",
        other if other.is_fifo() => "a pipe",
        other if other.is_socket() => "a socket",
        other if other.is_char_device() || other.is_block_device() => "a device",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &Path, kind: FileKind) -> String {
        let refused = read_regular(path, kind).expect_err("it was read");
        refused.to_string()
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RUSR).expect("made");
        let link = path("link");
        std::os::unix::fs::symlink("/dev/zero", &link).expect("linked");
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("bound");
        for (name, what) in [
            ("pipe", "a pipe"),
            ("link", "a device"),
            ("socket", "a socket"),
            ("", "a directory"),
        ] {
            let expected = format!("a tokenizer must be a regular file, found {what}");
            assert_eq!(found(&path(name), FileKind::Tokenizer), expected);
        }
        let missing = read_regular(&path("missing"), FileKind::Record);
        assert!(missing.expect_err("it was read").is_not_found());
    }

    #[test]
    fn a_file_has_at_most_the_bytes_of_its_kind() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("template");
        let file = File::create(&path).expect("created");
        let kind = FileKind::ChatTemplate;
        file.set_len(kind.max_bytes()).expect("sized");
        let read = read_regular(&path, kind).expect("read");
        assert_eq!(read.len() as u64, kind.max_bytes());
        file.set_len(kind.max_bytes() + 1).expect("sized");
        let expected = "a chat template may have at most 1.00 MiB, found 1048577 bytes";
        assert_eq!(found(&path, kind), expected);
        // Its reported size is 0, and reading it never ends.
        let endless = read_regular(Path::new("/proc/self/pagemap"), FileKind::Revision);
        assert!(endless.is_err());
    }
}
