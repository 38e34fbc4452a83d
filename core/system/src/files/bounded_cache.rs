//! A directory of entries that can be made again: bounded in size, shared by processes, checked
//! when read.
//!
//! An entry is one file: a line with the hash of all that follows, a line of JSON that describes
//! it, and its segments. It is written under another name and renamed, so a process that ends at
//! any point leaves a whole entry or none. Nothing is synced: after a power failure an entry may be
//! damaged, which its hash shows. An entry's time of change is that of its last use.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use espalier_interface::{Services, in_pieces};
use serde_json::Value as Json;
use tempfile::Builder;

use super::FileError;
use super::atomic_file::{free_bytes, write_error};
use super::file_kind::FileKind;
use super::lock::wait_for;
use super::regular_file::open_regular;
use super::tree_hash::{PART_BYTES, TreeHash};

/// The ending of an entry's name, after its key.
const ENDING: &str = ".packed";
/// The ending of a file that is being written.
const UNFINISHED: &str = ".unfinished";
/// Age at which an unfinished file belongs to a process that ended.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Most bytes of the two lines before the segments.
const MAX_HEAD_BYTES: u64 = 1 << 20;
/// Free space that is left to others on the file system.
const LEFT_FREE_BYTES: u64 = 1 << 30;
/// How long the removal of old entries waits for that of another process.
const PATIENCE: Duration = Duration::from_secs(5);

/// A cache that this process reads and writes.
#[derive(Debug)]
pub struct BoundedCache {
    directory: PathBuf,
    most_bytes: u64,
    /// Entries used since then are this process's own, and stay.
    opened: SystemTime,
    /// Bytes of all entries, as far as this process knows.
    bytes: Mutex<u64>,
}

/// An entry as it lies in the directory.
#[derive(Clone, Debug)]
pub struct CacheEntry {
    /// Its file.
    pub path: PathBuf,
    /// Bytes of the file.
    pub bytes: u64,
    /// When it was written or read last.
    pub used: SystemTime,
    /// What its maker said of it; null where the file is damaged.
    pub about: Json,
}

impl BoundedCache {
    /// Opens `directory`, which is created if needed, for entries of at most `most_bytes` bytes
    /// together.
    ///
    /// # Errors
    /// A directory that cannot be created or listed, or that other users may write.
    pub fn open(directory: &Path, most_bytes: u64) -> Result<Self, FileError> {
        let failed = |source| write_error(directory, 0, source);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(directory).map_err(failed)?;
        let mode = fs::metadata(directory)
            .map_err(failed)?
            .permissions()
            .mode();
        if mode & 0o022 != 0 {
            let problem = "other users may write it: `chmod go-w` makes it your own";
            return Err(failed(io::Error::new(
                io::ErrorKind::PermissionDenied,
                problem,
            )));
        }
        let entries = listed(directory)?;
        Ok(BoundedCache {
            directory: directory.to_owned(),
            most_bytes,
            opened: SystemTime::now(),
            bytes: Mutex::new(entries.iter().map(|entry| entry.bytes).sum()),
        })
    }

    /// Reads the entry `key` into `segments`, which have its sizes, by the threads of `services`.
    /// Returns what its maker said of it; none where there is no such entry.
    ///
    /// # Errors
    /// What is wrong with a damaged entry, which is removed. `segments` then hold anything.
    pub fn read(
        &self,
        key: &str,
        segments: &mut [&mut [u8]],
        services: &dyn Services,
    ) -> Result<Option<Json>, String> {
        let path = self.path(key);
        let file = match open_regular(&path, FileKind::Content) {
            Ok((file, _)) => file,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        match read_entry(&file, segments, services) {
            Ok(about) => {
                // Where the time cannot be set, the entry only leaves the cache earlier.
                let _ = file.set_modified(SystemTime::now());
                Ok(Some(about))
            }
            Err(problem) => {
                let _ = fs::remove_file(&path);
                Err(format!("{}: {problem}", path.display()))
            }
        }
    }

    /// Writes the entry `key`, if it is not there. Entries that were used least recently make room
    /// for it. False where there is none: beside the entries of this process, or on the disk.
    ///
    /// # Errors
    /// A directory that cannot be listed or written.
    pub fn put(
        &self,
        key: &str,
        about: &Json,
        segments: &[&[u8]],
        services: &dyn Services,
    ) -> Result<bool, FileError> {
        let path = self.path(key);
        if path.exists() {
            return Ok(true);
        }
        let about = format!("{about}\n");
        let mut hashes = vec![TreeHash::part(about.as_bytes())];
        for segment in segments {
            let parts = segment.chunks(PART_BYTES).collect();
            hashes.extend(in_pieces(services, parts, TreeHash::part));
        }
        let head = format!("{}\n{about}", TreeHash::of(hashes).whole());
        let bytes = segments
            .iter()
            .map(|segment| segment.len() as u64)
            .sum::<u64>();
        let bytes = bytes + head.len() as u64;
        if !self.make_room(bytes)? {
            return Ok(false);
        }
        let failed = |error| write_error(&path, bytes, error);
        let mut builder = Builder::new();
        let mut file = builder
            .suffix(UNFINISHED)
            .tempfile_in(&self.directory)
            .map_err(failed)?;
        file.write_all(head.as_bytes()).map_err(failed)?;
        for segment in segments {
            file.write_all(segment).map_err(failed)?;
        }
        // The clock of file systems lags behind, and would make it older than this process.
        let _ = file.as_file().set_modified(SystemTime::now());
        file.persist(&path).map_err(|error| failed(error.error))?;
        *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) += bytes;
        Ok(true)
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{key}{ENDING}"))
    }

    /// Removes entries that were used least recently, and none of this process, until `needed`
    /// bytes fit. False where they do not.
    fn make_room(&self, needed: u64) -> Result<bool, FileError> {
        let fits = |bytes: u64| bytes.saturating_add(needed) <= self.most_bytes;
        let free = free_bytes(&self.directory.join(ENDING));
        if !fits(0) || free.is_some_and(|free| free < needed + LEFT_FREE_BYTES) {
            return Ok(false);
        }
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if fits(*bytes) {
            return Ok(true);
        }
        // Without the lock two processes would remove twice as much.
        let lock = self.directory.join("lock");
        let _held = wait_for(&lock, PATIENCE).map_err(|error| write_error(&lock, 0, error))?;
        let mut entries = listed(&self.directory)?;
        *bytes = entries.iter().map(|entry| entry.bytes).sum();
        entries.retain(|entry| entry.used < self.opened);
        entries.sort_by_key(|entry| entry.used);
        for entry in entries {
            if fits(*bytes) {
                break;
            }
            remove(&entry.path)?;
            *bytes = bytes.saturating_sub(entry.bytes);
        }
        Ok(fits(*bytes))
    }
}

/// The entries of the cache in `directory` with what their makers said of them; none where there is
/// no such directory.
///
/// # Errors
/// A directory that cannot be listed.
pub fn cache_entries(directory: &Path) -> Result<Vec<CacheEntry>, FileError> {
    let mut entries = listed(directory)?;
    for entry in &mut entries {
        let head = File::open(&entry.path)
            .ok()
            .and_then(|file| head(&file).ok());
        entry.about = head.map_or(Json::Null, |head| head.about());
    }
    Ok(entries)
}

/// Removes the entries of the cache in `directory` that `which` accepts. Returns their number and
/// bytes.
///
/// # Errors
/// A directory that cannot be listed, an entry that cannot be removed.
pub fn clear_cache(
    directory: &Path,
    which: &dyn Fn(&CacheEntry) -> bool,
) -> Result<(u64, u64), FileError> {
    let mut removed = (0, 0);
    for entry in cache_entries(directory)?
        .iter()
        .filter(|entry| which(entry))
    {
        remove(&entry.path)?;
        removed = (removed.0 + 1, removed.1 + entry.bytes);
    }
    Ok(removed)
}

/// The entries without what is said of them. Unfinished files of processes that ended are removed.
fn listed(directory: &Path) -> Result<Vec<CacheEntry>, FileError> {
    let failed = |source| FileError::Read {
        path: directory.to_owned(),
        source,
    };
    let listing = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing.map_err(failed)?,
    };
    let mut entries = Vec::new();
    for found in listing {
        let path = found.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Another process may have removed it since.
        let Ok(metadata) = path.symlink_metadata() else {
            continue;
        };
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        if name.ends_with(ENDING) && metadata.is_file() {
            entries.push(CacheEntry {
                bytes: metadata.len(),
                about: Json::Null,
                path,
                used,
            });
        } else if name.ends_with(UNFINISHED) && used.elapsed().is_ok_and(|age| age > ABANDONED) {
            remove(&path)?;
        }
    }
    Ok(entries)
}

fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(write_error(path, 0, error)),
        _ => Ok(()),
    }
}

/// The lines before an entry's segments.
struct Head {
    hash: String,
    about: String,
}

impl Head {
    fn bytes(&self) -> u64 {
        (self.hash.len() + self.about.len()) as u64
    }

    fn about(&self) -> Json {
        serde_json::from_str(&self.about).unwrap_or_default()
    }
}

fn head(file: &File) -> io::Result<Head> {
    let mut lines = BufReader::new(file.take(MAX_HEAD_BYTES));
    let mut line = || {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let is_whole = line.ends_with('\n');
        let cut_off = || io::Error::other("its first lines are cut off");
        is_whole.then_some(line).ok_or_else(cut_off)
    };
    let (hash, about) = (line()?, line()?);
    Ok(Head { hash, about })
}

/// Fills `segments` from an entry's file and compares all of it with its hash.
fn read_entry(
    file: &File,
    segments: &mut [&mut [u8]],
    services: &dyn Services,
) -> Result<Json, String> {
    let head = head(file).map_err(|error| error.to_string())?;
    let bytes: u64 = segments.iter().map(|segment| segment.len() as u64).sum();
    let found = file.metadata().map_err(|error| error.to_string())?.len();
    if found != head.bytes() + bytes {
        let expected = head.bytes() + bytes;
        return Err(format!("expected {expected} bytes, found {found}"));
    }
    let mut offset = head.bytes();
    let mut parts = Vec::new();
    for segment in segments.iter_mut() {
        for part in segment.chunks_mut(PART_BYTES) {
            let after = offset + part.len() as u64;
            parts.push((std::mem::replace(&mut offset, after), part));
        }
    }
    let hashed = in_pieces(services, parts, |(offset, part): (u64, &mut [u8])| {
        file.read_exact_at(part, offset)?;
        Ok(TreeHash::part(part))
    });
    let hashed: io::Result<Vec<_>> = hashed.into_iter().collect();
    let mut hashes = vec![TreeHash::part(head.about.as_bytes())];
    hashes.extend(hashed.map_err(|error| error.to_string())?);
    let whole = TreeHash::of(hashes).whole();
    if head.hash.trim_end() != whole {
        let problem = "and its first line another";
        return Err(format!("its content has the hash {whole}, {problem}"));
    }
    Ok(head.about())
}

#[cfg(test)]
mod tests;
