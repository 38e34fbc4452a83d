//! Bytes -> a file, written atomically: `.partial`, sync, rename, sync.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde_json::Value;

use super::FileError;
use super::file_kind::FileKind;
use super::lock::{Hold, hold, hold_within, is_at};
use super::regular_file::open_regular;

/// Most bytes of a new directory entry on common file systems: one block.
pub(super) const NAME_BYTES: u64 = 4096;

/// Bytes collected before they go to the operating system.
const BUFFER_BYTES: usize = 1 << 20;

/// Flags for opening a file left by an earlier process.
const LEFT: OFlags = OFlags::NONBLOCK.union(OFlags::NOFOLLOW);

/// Longest wait for another process that writes the same file.
const PATIENCE: Duration = Duration::from_secs(2);

/// A file that is being written beside its target. Dropped without [`PartialFile::commit`], it is
/// removed, and the target is unchanged.
#[derive(Debug)]
pub struct PartialFile {
    target: PathBuf,
    partial: PathBuf,
    needed_bytes: u64,
    /// Offset of the next byte.
    position: u64,
    writer: Option<BufWriter<File>>,
}

impl PartialFile {
    /// Starts `target`, which will have `needed_bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`FileError::DiskFull`] where the file system already reports too little space,
    /// [`FileError::OutputLocked`] where another process writes `target` for more than two seconds.
    pub fn create(target: &Path, needed_bytes: u64) -> Result<Self, FileError> {
        check_room(target, needed_bytes)?;
        let partial = partial_path(target);
        let file = claim(target, &partial, needed_bytes)?;
        Ok(PartialFile {
            target: target.to_owned(),
            partial,
            needed_bytes,
            position: 0,
            writer: Some(BufWriter::with_capacity(BUFFER_BYTES, file)),
        })
    }

    /// Appends `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.write_at(self.position, bytes)
    }

    /// Writes `bytes` at `offset` from the start of the file.
    pub(super) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let writer = self.writer.as_mut().expect("present until the commit");
        let moved = if offset == self.position {
            Ok(offset)
        } else {
            writer.seek(SeekFrom::Start(offset))
        };
        moved
            .and_then(|_| writer.write_all(bytes))
            .map_err(|e| write_error(&self.target, self.needed_bytes, e))?;
        self.position = offset + bytes.len() as u64;
        Ok(())
    }

    /// The path of the committed file.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Syncs the file and renames it to its target, replacing an older one.
    pub fn commit(mut self) -> Result<(), FileError> {
        let fail = |error| write_error(&self.target, self.needed_bytes, error);
        let writer = self.writer.as_mut().expect("present until the commit");
        writer.flush().map_err(fail)?;
        writer.get_ref().sync_all().map_err(fail)?;
        fs::rename(&self.partial, &self.target).map_err(fail)?;
        self.writer = None;
        sync_directory(parent(&self.target))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            // Buffered bytes are discarded. The file is removed while locked; a failure to remove
            // it is ignored.
            let held = writer.into_parts();
            let _ = fs::remove_file(&self.partial);
            drop(held);
        }
    }
}

/// Creates and locks the empty file `partial` of `target`, and removes a file left by an earlier
/// process.
fn claim(target: &Path, partial: &Path, needed_bytes: u64) -> Result<File, FileError> {
    let fail = |error| write_error(target, needed_bytes, error);
    let started = Instant::now();
    loop {
        match partial.symlink_metadata() {
            Ok(left) if left.is_file() => {
                let mut options = OpenOptions::new();
                options.read(true).write(true);
                let left = match options.custom_flags(LEFT.bits() as i32).open(partial) {
                    // Committed or removed in between: try again.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    opened => opened.map_err(fail)?,
                };
                let patience = PATIENCE.saturating_sub(started.elapsed());
                match hold_within(&left, patience).map_err(fail)? {
                    Hold::Taken => return Err(taken(target)),
                    Hold::Held if !is_at(&left, partial).map_err(fail)? => continue,
                    // Removed while locked, so that no other process claims it.
                    Hold::Held | Hold::NoLocks => remove(partial, needed_bytes)?,
                }
            }
            Ok(_) => remove(partial, needed_bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error)),
        }
        let mut options = OpenOptions::new();
        let file = match options.write(true).create_new(true).open(partial) {
            // Another process created it first: it is locked now, or complete.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            opened => opened.map_err(fail)?,
        };
        match hold(&file).map_err(fail)? {
            Hold::Held if is_at(&file, partial).map_err(fail)? => return Ok(file),
            Hold::Held | Hold::Taken => {}
            Hold::NoLocks => return Ok(file),
        }
    }
}

fn remove(partial: &Path, needed_bytes: u64) -> Result<(), FileError> {
    match fs::remove_file(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(write_error(partial, needed_bytes, error))
        }
        _ => Ok(()),
    }
}

/// Another process is writing `target`.
pub(super) fn taken(target: &Path) -> FileError {
    FileError::OutputLocked {
        path: target.to_owned(),
        holder: "another process".to_owned(),
    }
}

/// Writes `bytes` to `target` atomically.
pub fn write_atomically(target: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut file = PartialFile::create(target, bytes.len() as u64)?;
    file.write(bytes)?;
    file.commit()
}

/// Copies the file `source` to `target` atomically, 1 MiB at a time.
pub fn copy_file(source: &Path, target: &Path) -> Result<(), FileError> {
    let fail = |error| FileError::Read {
        path: source.to_owned(),
        source: error,
    };
    let (mut from, bytes) =
        open_regular(source, FileKind::Content).map_err(|error| error.of(source))?;
    let mut file = PartialFile::create(target, bytes)?;
    let mut chunk = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut chunk).map_err(fail)? {
            0 => return file.commit(),
            count => file.write(&chunk[..count])?,
        }
    }
}

/// Writes `value` as indented JSON to `target` atomically.
pub fn write_json(target: &Path, value: &Value) -> Result<(), FileError> {
    write_atomically(target, format!("{value:#}\n").as_bytes())
}

/// `target` with `.partial` after its name.
pub(super) fn partial_path(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

/// The parent directory of `path`.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Syncs the entries of `directory`.
pub(super) fn sync_directory(directory: &Path) -> Result<(), FileError> {
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| write_error(directory, NAME_BYTES, error))
}

/// Refuses a write of `needed_bytes` bytes to `target` that exceeds the free space of its file
/// system.
pub(super) fn check_room(target: &Path, needed_bytes: u64) -> Result<(), FileError> {
    match free_bytes(target) {
        Some(free) if free < needed_bytes => Err(FileError::DiskFull {
            path: target.to_owned(),
            needed_bytes,
            free_bytes: Some(free),
            source: io::ErrorKind::StorageFull.into(),
        }),
        _ => Ok(()),
    }
}

/// The error of a failed write of `needed_bytes` bytes to `target`.
pub fn write_error(target: &Path, needed_bytes: u64, source: io::Error) -> FileError {
    let path = target.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FileError::DiskFull {
            free_bytes: free_bytes(&path),
            path,
            needed_bytes,
            source,
        },
        // A limit on the file's size, not on the disk: the free space would mislead.
        io::ErrorKind::FileTooLarge => FileError::DiskFull {
            path,
            needed_bytes,
            free_bytes: None,
            source,
        },
        _ => FileError::Write { path, source },
    }
}

/// Free bytes on the file system of the directory of `target`; `None` where they are unknown.
pub fn free_bytes(target: &Path) -> Option<u64> {
    let status = rustix::fs::statvfs(parent(target)).ok()?;
    (status.f_blocks > 0).then(|| status.f_bavail.saturating_mul(status.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn full_disks_quotas_and_size_limits_are_distinguished_from_other_failures() {
        let class = |errno: rustix::io::Errno| {
            write_error(Path::new("f"), 10, io::Error::from(errno))
                .exit_class()
                .code()
        };
        use rustix::io::Errno;
        assert_eq!(
            [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].map(class),
            [8, 8, 8]
        );
        assert_eq!([Errno::ACCESS, Errno::NOENT].map(class), [2, 2]);
    }
}
