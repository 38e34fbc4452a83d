//! An open file or directory -> held by this process alone until it is closed, however the process ends.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// What came of an attempt to hold a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// It is held until it is closed.
    Held,
    /// Another process holds it, or another part of this one.
    Taken,
    /// Its file system has no locks.
    NoLocks,
}

/// Tries to hold `file`.
///
/// # Errors
/// What the file system says, other than that it has no locks.
pub(super) fn hold(file: &File) -> io::Result<Hold> {
    loop {
        return match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Hold::Held),
            Err(Errno::WOULDBLOCK) => Ok(Hold::Taken),
            Err(Errno::INTR) => continue,
            // NFS has none for what is not open to be written, as no directory is: BADF.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK | Errno::BADF) => Ok(Hold::NoLocks),
            Err(error) => Err(error.into()),
        };
    }
}

/// Whether `path` still leads to `file`: whoever held it before may have removed or renamed it.
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    let same = |named: fs::Metadata| (named.dev(), named.ino()) == (held.dev(), held.ino());
    Ok(path.symlink_metadata().is_ok_and(same))
}

/// Makes the empty file `path` if need be and waits until no other process holds it. `None` where its file system has no
/// locks.
///
/// # Errors
/// A file that cannot be made or opened.
pub(crate) fn wait_for(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    loop {
        return match flock(&file, FlockOperation::LockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::INTR) => continue,
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
}
