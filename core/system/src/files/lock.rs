//! An open file or directory -> an exclusive lock of this process until it is closed or the process
//! ends.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Pause between two attempts to lock a file.
const PAUSE: Duration = Duration::from_millis(5);

/// The outcome of an attempt to lock a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// It is locked until it is closed.
    Held,
    /// It is locked by another process, or by another part of this one.
    Taken,
    /// Its file system does not support locks.
    NoLocks,
}

/// Tries to lock `file`.
///
/// # Errors
/// Errors of the file system, except that locks are not supported.
pub(super) fn hold(file: &File) -> io::Result<Hold> {
    loop {
        return match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Hold::Held),
            Err(Errno::WOULDBLOCK) => Ok(Hold::Taken),
            Err(Errno::INTR) => continue,
            // NFS supports no locks on files not open for writing, which includes directories:
            // BADF.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK | Errno::BADF) => Ok(Hold::NoLocks),
            Err(error) => Err(error.into()),
        };
    }
}

/// As [`hold`], waiting at most `patience` for another holder.
///
/// # Errors
/// As [`hold`].
pub(super) fn hold_within(file: &File, patience: Duration) -> io::Result<Hold> {
    let started = Instant::now();
    loop {
        match hold(file)? {
            Hold::Taken if started.elapsed() < patience => thread::sleep(PAUSE),
            found => return Ok(found),
        }
    }
}

/// Whether `path` is still `file`: an earlier holder can have removed or renamed it.
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    let same = |named: fs::Metadata| (named.dev(), named.ino()) == (held.dev(), held.ino());
    Ok(path.symlink_metadata().is_ok_and(same))
}

/// Creates the empty file `path` if it is missing, and waits at most `patience` for its lock.
/// `None` where another process holds it longer, or the file system has no locks.
///
/// # Errors
/// A file that cannot be created or opened; a path that is no regular file.
pub fn wait_for(path: &Path, patience: Duration) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // A pipe in its place is opened at once, and refused.
    options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        let problem = format!("{} is no regular file", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let held = hold_within(&file, patience)? == Hold::Held;
    Ok(held.then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_a_lock_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let short = Duration::from_millis(20);
        let first = wait_for(&path, short).expect("a file");
        assert!(first.is_some());
        assert!(wait_for(&path, short).expect("a file").is_none());
        drop(first);
        assert!(wait_for(&path, short).expect("a file").is_some());
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo starts").success());
        assert!(wait_for(&pipe, short).is_err());
    }
}
