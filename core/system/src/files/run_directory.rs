//! An output directory -> one that is locked for this run.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tempfile::TempDir;

use super::atomic_file::{NAME_BYTES, parent, sync_directory, write_error};
use super::lock::{Hold, hold_within, is_at};
use super::regular_file::described;
use super::run_state::RunState;
use super::{FileError, FileKind, open_regular};

/// Files of a finished run.
const FINISHED: [&str; 2] = ["adapter", "model"];
/// Files of an unfinished run.
const UNFINISHED: [&str; 3] = [CHECKPOINTS, METRICS, "run.json"];
const CHECKPOINTS: &str = "checkpoints";
const METRICS: &str = "metrics.jsonl";
/// The record of a comparison.
pub const COMPARISON: &str = "compare.json";
const LOCK: &str = "run.lock";
/// Longer than [`holder_of`] holds a free lock.
const CHECK_TIME: Duration = Duration::from_millis(50);

/// The treatment of an output directory that already holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continue {
    /// Refuse it: nothing that exists is overwritten.
    Refuse,
    /// Resume it (`--resume`).
    Resume,
}

/// An output directory, locked for this process until it is dropped or the process ends.
#[derive(Debug)]
pub struct RunDirectory {
    /// The directory that this process writes to.
    path: PathBuf,
    /// The output directory itself.
    home: PathBuf,
    /// Temporary directory of a process that does not write to the output directory; removed on
    /// drop.
    _aside: Option<TempDir>,
    state: RunState,
    lock: Option<File>,
    /// Dropped after the lock.
    made: MadeDirectories,
}

/// The directories created for a path; empty ones are removed on drop.
#[derive(Debug, Default)]
pub struct MadeDirectories(Vec<PathBuf>);

impl RunDirectory {
    /// Creates the directory `path` if it is missing, and locks it.
    ///
    /// # Errors
    ///
    /// [`FileError::OutputLocked`] where another process has locked it, [`FileError::OutputTaken`]
    /// where it holds a run and `existing` is [`Continue::Refuse`]. Other files in it are ignored.
    pub fn claim(path: &Path, existing: Continue) -> Result<Self, FileError> {
        let can_resume = |state| existing == Continue::Resume && state != RunState::Comparison;
        RunDirectory::claim_where(path, can_resume)
    }

    /// As [`RunDirectory::claim`], for a comparison of runs.
    ///
    /// # Errors
    /// As [`RunDirectory::claim`]; a directory with a single run cannot be resumed as a comparison.
    pub fn claim_comparison(path: &Path, existing: Continue) -> Result<Self, FileError> {
        let can_resume = |state| existing == Continue::Resume && state == RunState::Comparison;
        RunDirectory::claim_where(path, can_resume)
    }

    /// Refuses a directory that [`RunDirectory::claim`] would refuse for a new run, because of its
    /// content or the lock of another process. Nothing is created.
    ///
    /// # Errors
    ///
    /// As [`RunDirectory::claim`].
    pub fn refuse_taken(path: &Path) -> Result<(), FileError> {
        if let Some(holder) = holder_of(path) {
            let path = path.to_owned();
            return Err(FileError::OutputLocked { path, holder });
        }
        let (state, found) = find_run(path);
        match state {
            RunState::Empty => Ok(()),
            _ => Err(taken(path, state, found)),
        }
    }

    fn claim_where(
        path: &Path,
        can_resume: impl FnOnce(RunState) -> bool,
    ) -> Result<Self, FileError> {
        let made = MadeDirectories::missing(path);
        let lock = lock(path)?;
        let (state, found) = find_run(path);
        let claimed = RunDirectory {
            path: path.to_owned(),
            home: path.to_owned(),
            _aside: None,
            state,
            lock,
            made,
        };
        if state != RunState::Empty && !can_resume(state) {
            return Err(taken(path, state, found));
        }
        claimed.made.sync()?;
        Ok(claimed)
    }

    /// The output directory `home` of a run of several processes, for a process that does not write
    /// the common result. Its own files go to a temporary directory that is removed at the end.
    ///
    /// # Errors
    ///
    /// A temporary directory that cannot be created.
    pub fn beside(home: &Path) -> Result<Self, FileError> {
        let aside = tempfile::tempdir();
        let aside = aside.map_err(|error| write_error(&std::env::temp_dir(), NAME_BYTES, error))?;
        Ok(RunDirectory {
            path: aside.path().to_owned(),
            home: home.to_owned(),
            _aside: Some(aside),
            state: find_run(home).0,
            lock: None,
            made: MadeDirectories::default(),
        })
    }

    /// The output directory, which other processes can share.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The directory to write to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of `name` in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The path of a finished run's adapter or model, if it existed when the directory was claimed.
    pub fn finished(&self) -> Option<PathBuf> {
        let mut saved = FINISHED.iter().map(|name| self.home.join(name));
        let finished = self.state == RunState::Finished;
        saved.find(|path| finished && path.symlink_metadata().is_ok())
    }

    /// The first file used by a resumed run that is no regular file, with its type.
    pub fn not_regular(&self) -> Option<(PathBuf, &'static str)> {
        let beside = [METRICS, "run.json"].map(|name| self.home.join(name));
        let within = ["tensorboard", "held_out"].into_iter().flat_map(|name| {
            let entries = fs::read_dir(self.home.join(name)).into_iter().flatten();
            entries.flatten().map(|entry| entry.path())
        });
        let mut files = beside.into_iter().chain(within);
        files.find_map(|path| {
            let found = fs::metadata(&path).ok()?;
            (!found.is_file()).then(|| (path, described(found.file_type())))
        })
    }

    /// The state of the directory when it was claimed.
    pub fn state(&self) -> RunState {
        self.state
    }
}

/// The process that has locked the output directory `path`, as recorded in the lock file; `None`
/// where it is free.
pub fn holder_of(path: &Path) -> Option<String> {
    let (mut file, _) = open_regular(&path.join(LOCK), FileKind::Record).ok()?;
    loop {
        return match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => Some(holder(&mut file)),
            Err(Errno::INTR) => continue,
            _ => None,
        };
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if self.lock.is_some() {
            // Removed while still locked: a process that opened it meanwhile sees that it is
            // removed.
            let _ = fs::remove_file(self.path.join(LOCK));
        }
    }
}

impl MadeDirectories {
    /// `path` and its parents that do not exist yet, the innermost first.
    pub fn missing(path: &Path) -> Self {
        let missing =
            |above: &&Path| !above.as_os_str().is_empty() && above.symlink_metadata().is_err();
        MadeDirectories(
            path.ancestors()
                .take_while(missing)
                .map(Path::to_owned)
                .collect(),
        )
    }

    /// Syncs their entries: a checkpoint is lost if its directory is not on disk.
    fn sync(&self) -> Result<(), FileError> {
        self.0
            .iter()
            .rev()
            .try_for_each(|made| sync_directory(parent(made)))
    }
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        // A directory that is not empty is kept, with its parents.
        let _ = self.0.iter().try_for_each(fs::remove_dir);
    }
}

/// Creates `directory` if it is missing, and locks it; `None` where its file system has no locks.
fn lock(directory: &Path) -> Result<Option<File>, FileError> {
    let path = directory.join(LOCK);
    let fail = |error| write_error(&path, NAME_BYTES, error);
    loop {
        fs::create_dir_all(directory).map_err(|error| write_error(directory, NAME_BYTES, error))?;
        if let Ok(found) = fs::metadata(&path)
            && !found.is_file()
        {
            return Err(FileError::NotAFile {
                path,
                kind: FileKind::Record,
                found: described(found.file_type()),
            });
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = match options.open(&path) {
            // Its creator removed the directory in between: try again.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.exists() => {
                continue;
            }
            opened => opened.map_err(fail)?,
        };
        // A process that only checks the lock holds it for a moment.
        match hold_within(&file, CHECK_TIME).map_err(fail)? {
            Hold::Held => {}
            Hold::Taken => {
                let holder = holder(&mut file);
                return Err(FileError::OutputLocked {
                    path: directory.to_owned(),
                    holder,
                });
            }
            Hold::NoLocks => {
                tracing::warn!(
                    "the file system of {} has no locks: make sure that no other run uses it",
                    directory.display()
                );
                let _ = fs::remove_file(&path);
                return Ok(None);
            }
        }
        // The holder before us removed the file between our opening and locking it: try again.
        if !is_at(&file, &path).map_err(fail)? {
            continue;
        }
        file.set_len(0).map_err(fail)?;
        write!(file, "{}", this_process()).map_err(fail)?;
        return Ok(Some(file));
    }
}

/// A description of this process.
pub fn this_process() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    format!("process {} on {host}", std::process::id())
}

/// The holder of the lock, as recorded in the lock file. One that has just taken it is given a
/// moment to write its record.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let begin = Instant::now();
    let read = loop {
        let read = io::Read::by_ref(file).take(256).read_to_string(&mut text);
        if read.is_err() || !text.is_empty() || begin.elapsed() >= CHECK_TIME {
            break read;
        }
        thread::sleep(Duration::from_millis(1));
    };
    let printable = !text.is_empty() && !text.chars().any(char::is_control);
    match read {
        Ok(_) if printable => text,
        _ => "another process".to_owned(),
    }
}

fn taken(path: &Path, state: RunState, found: String) -> FileError {
    FileError::OutputTaken {
        path: path.to_owned(),
        state,
        found,
    }
}

/// Whether `directory` holds a run that ended before its first metric: empty metrics and no
/// checkpoint.
fn ended_before_first_metric(directory: &Path) -> bool {
    let metrics = directory.join(METRICS).symlink_metadata();
    let has_no_line = metrics.is_ok_and(|file| file.is_file() && file.len() == 0);
    has_no_line && directory.join(CHECKPOINTS).symlink_metadata().is_err()
}

/// The state of `directory` and the names that show it.
fn find_run(directory: &Path) -> (RunState, String) {
    let present = |names: &[&'static str]| -> Vec<&'static str> {
        let there = |name: &&'static str| directory.join(name).symlink_metadata().is_ok();
        names.iter().copied().filter(there).collect()
    };
    let (finished, unfinished) = (present(&FINISHED), present(&UNFINISHED));
    let compared = present(&[COMPARISON]);
    if !compared.is_empty() {
        return (RunState::Comparison, compared.join(", "));
    }
    match (finished.is_empty(), unfinished.is_empty()) {
        (false, _) => (RunState::Finished, finished.join(", ")),
        (true, false) if !ended_before_first_metric(directory) => {
            (RunState::Unfinished, unfinished.join(", "))
        }
        (true, _) => (RunState::Empty, String::new()),
    }
}
