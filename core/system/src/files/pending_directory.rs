//! Files -> a directory, written atomically: `.partial`, sync, rename.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::FileError;
use super::atomic_file::{NAME_BYTES, parent, partial_path, sync_directory, taken, write_error};
use super::lock::{Hold, hold, is_at};

/// A directory that is being written as `NAME.partial` beside its target. Dropped without a commit,
/// it is removed, and the target is unchanged.
#[derive(Debug)]
pub struct PendingDirectory {
    target: PathBuf,
    partial: PathBuf,
    committed: bool,
    /// The locked partial directory; `None` where its file system has no locks.
    _held: Option<File>,
}

impl PendingDirectory {
    /// Starts the directory `target`; an unfinished attempt of an earlier process is removed.
    ///
    /// # Errors
    /// [`FileError::OutputLocked`] where another process is writing it.
    pub fn begin(target: &Path) -> Result<Self, FileError> {
        create_synced(parent(target))?;
        restore_replaced(target)?;
        let partial = partial_path(target);
        let held = claim(target, &partial)?;
        Ok(PendingDirectory {
            target: target.to_owned(),
            partial,
            committed: false,
            _held: held,
        })
    }

    /// The directory for its files until the commit.
    pub fn path(&self) -> &Path {
        &self.partial
    }

    /// Syncs the directory and renames it to its target.
    ///
    /// # Errors
    ///
    /// [`FileError::Exists`] where the target exists.
    pub fn commit(mut self) -> Result<(), FileError> {
        if self.target.symlink_metadata().is_ok() {
            return Err(FileError::Exists {
                path: self.target.clone(),
            });
        }
        self.put_in_place()
    }

    /// Renames the directory to its target. An existing one is replaced atomically where the file
    /// system supports it, and is never removed before the new one is complete.
    pub fn commit_replacing(mut self) -> Result<(), FileError> {
        if self.target.symlink_metadata().is_err() {
            return self.put_in_place();
        }
        sync_tree(&self.partial)?;
        match renameat_with(CWD, &self.partial, CWD, &self.target, RenameFlags::EXCHANGE) {
            Ok(()) => {
                self.committed = true;
                sync_directory(parent(&self.target))?;
                remove_directory(&self.partial)
            }
            // File systems without atomic exchange: the old one is renamed first.
            // `restore_replaced` restores it if the process dies between the two steps.
            Err(_) => {
                let replaced = replaced_path(&self.target);
                remove_directory(&replaced)?;
                fs::rename(&self.target, &replaced).map_err(|e| failure(&self.target, e))?;
                if let Err(error) = self.put_in_place() {
                    restore_replaced(&self.target)?;
                    return Err(error);
                }
                remove_directory(&replaced)
            }
        }
    }

    fn put_in_place(&mut self) -> Result<(), FileError> {
        sync_tree(&self.partial)?;
        fs::rename(&self.partial, &self.target).map_err(|e| failure(&self.target, e))?;
        self.committed = true;
        sync_directory(parent(&self.target))
    }
}

impl Drop for PendingDirectory {
    fn drop(&mut self) {
        if !self.committed {
            // A failure to remove it is ignored; the next attempt removes it.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

/// Creates and locks the empty directory `partial` of `target`.
fn claim(target: &Path, partial: &Path) -> Result<Option<File>, FileError> {
    let fail = |error| failure(partial, error);
    loop {
        match fs::create_dir(partial) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fail(error)),
            Err(_) if !partial.symlink_metadata().is_ok_and(|found| found.is_dir()) => {
                remove_directory(partial)?;
                continue;
            }
            _ => {}
        }
        let directory = match File::open(partial) {
            // Committed or removed in between: try again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(fail)?,
        };
        let held = match hold(&directory).map_err(fail)? {
            Hold::Held if is_at(&directory, partial).map_err(fail)? => Some(directory),
            Hold::Held => continue,
            Hold::Taken => return Err(taken(target)),
            Hold::NoLocks => None,
        };
        for entry in fs::read_dir(partial).map_err(fail)? {
            remove_directory(&entry.map_err(fail)?.path())?;
        }
        return Ok(held);
    }
}

/// Removes a committed directory. It is renamed first, so that it is never visible in part.
pub fn remove_committed(directory: &Path) -> Result<(), FileError> {
    let partial = partial_path(directory);
    remove_directory(&partial)?;
    fs::rename(directory, &partial).map_err(|error| failure(directory, error))?;
    remove_directory(&partial)
}

/// Cleans up after a process that died while it committed, replaced or removed the directory
/// `target`.
pub fn sweep_leftover(target: &Path) -> Result<(), FileError> {
    restore_replaced(target)?;
    remove_directory(&partial_path(target))?;
    remove_directory(&replaced_path(target))
}

/// Creates `directory` and its parents, and syncs each.
fn create_synced(directory: &Path) -> Result<(), FileError> {
    let mut missing = Vec::new();
    let mut at = directory;
    loop {
        let above = parent(at);
        match fs::metadata(at) {
            Ok(_) => break,
            // A relative path has no parent beyond the working directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound && above != at => {
                missing.push(at);
                at = above;
            }
            Err(error) => return Err(failure(at, error)),
        }
    }
    missing
        .into_iter()
        .rev()
        .try_for_each(|directory| match fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failure(directory, error))
            }
            _ => sync_directory(parent(directory)),
        })
}

fn failure(path: &Path, source: io::Error) -> FileError {
    write_error(path, NAME_BYTES, source)
}

fn replaced_path(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".replaced.partial");
    PathBuf::from(name)
}

/// Restores the directory that an interrupted replacement renamed.
fn restore_replaced(target: &Path) -> Result<(), FileError> {
    let replaced = replaced_path(target);
    if replaced.is_dir() && target.symlink_metadata().is_err() {
        fs::rename(&replaced, target).map_err(|error| failure(target, error))?;
    }
    Ok(())
}

/// Removes the directory at `path`, or the file that a user put there.
fn remove_directory(path: &Path) -> Result<(), FileError> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if !metadata.is_dir() => fs::remove_file(path),
        _ => fs::remove_dir_all(path),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failure(path, error)),
        _ => Ok(()),
    }
}

/// Syncs all files and directories below `directory`.
fn sync_tree(directory: &Path) -> Result<(), FileError> {
    let fail = |error| failure(directory, error);
    for entry in fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            File::open(&path)
                .and_then(|file| file.sync_all())
                .map_err(|e| failure(&path, e))?;
        }
    }
    sync_directory(directory)
}
