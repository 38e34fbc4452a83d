//! An output directory into one that belongs to this run alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tempfile::TempDir;

use super::atomic_file::{NAME_BYTES, parent, sync_directory, write_error};
use super::lock::{Hold, hold_within, is_at};
use super::regular_file::described;
use super::run_state::RunState;
use super::{FileError, FileKind, open_regular};

/// What a finished run leaves.
const FINISHED: [&str; 2] = ["adapter", "model"];
/// What a run leaves that did not come to its end.
const UNFINISHED: [&str; 3] = [CHECKPOINTS, METRICS, "run.json"];
const CHECKPOINTS: &str = "checkpoints";
const METRICS: &str = "metrics.jsonl";
/// The record that a comparison of runs leaves.
pub const COMPARISON: &str = "compare.json";
const LOCK: &str = "run.lock";
/// More than the time for which [`holder_of`] holds a lock that nobody else does.
const A_LOOK: Duration = Duration::from_millis(50);

/// What to do with an output directory that already holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continue {
    /// Refuse it: nothing that exists is overwritten.
    Refuse,
    /// Go on with it (`--resume`).
    Resume,
}

/// An output directory, locked for this process until it is dropped. The lock ends with the
/// process, however it ends.
#[derive(Debug)]
pub struct RunDirectory {
    /// Where this process writes.
    path: PathBuf,
    /// The output directory itself.
    home: PathBuf,
    /// Where a process writes that has no part in the output directory; removed when it goes.
    _aside: Option<TempDir>,
    state: RunState,
    lock: Option<File>,
    /// Goes after the lock.
    made: MadeDirectories,
}

/// The directories that are made for a path, which go with this as long as they are empty.
#[derive(Debug, Default)]
pub struct MadeDirectories(Vec<PathBuf>);

impl RunDirectory {
    /// Creates the directory `path` if need be and claims it.
    ///
    /// # Errors
    ///
    /// [`FileError::OutputLocked`] where another process has it, [`FileError::OutputTaken`] where
    /// it holds a run and `existing` is [`Continue::Refuse`]. Other files in it do not matter.
    pub fn claim(path: &Path, existing: Continue) -> Result<Self, FileError> {
        let goes_on = |state| existing == Continue::Resume && state != RunState::Comparison;
        RunDirectory::claim_where(path, goes_on)
    }

    /// As [`RunDirectory::claim`], for a comparison of runs.
    ///
    /// # Errors
    /// As [`RunDirectory::claim`]; what holds a run is no comparison to go on with.
    pub fn claim_comparison(path: &Path, existing: Continue) -> Result<Self, FileError> {
        let goes_on = |state| existing == Continue::Resume && state == RunState::Comparison;
        RunDirectory::claim_where(path, goes_on)
    }

    /// Refuses a directory that [`RunDirectory::claim`] would refuse to a new run for what it
    /// holds, or because another process has it. Nothing is made.
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

    fn claim_where(path: &Path, goes_on: impl FnOnce(RunState) -> bool) -> Result<Self, FileError> {
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
        if state != RunState::Empty && !goes_on(state) {
            return Err(taken(path, state, found));
        }
        claimed.made.sync()?;
        Ok(claimed)
    }

    /// The output directory `home` of a run of several processes, for one that does not write what
    /// all of them have made: what it writes all the same is put aside and removed in the end.
    ///
    /// # Errors
    ///
    /// A temporary directory that cannot be made.
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

    /// The output directory, which other processes may share.
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

    /// Where a finished run's adapter or model would stand, if anything stood there when it was
    /// claimed.
    pub fn finished(&self) -> Option<PathBuf> {
        let mut saved = FINISHED.iter().map(|name| self.home.join(name));
        let finished = self.state == RunState::Finished;
        saved.find(|path| finished && path.symlink_metadata().is_ok())
    }

    /// The first file that a run which goes on reads or writes to where no regular file stands, and
    /// what stands there.
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

    /// What the directory held when it was claimed.
    pub fn state(&self) -> RunState {
        self.state
    }
}

/// Who has claimed the output directory `path`, as it wrote itself; nobody where no process has.
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
            // Removed while still locked: whoever opened it meanwhile sees that it is gone.
            let _ = fs::remove_file(self.path.join(LOCK));
        }
    }
}

impl MadeDirectories {
    /// `path` and those above it that are not there yet, the innermost first.
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

    /// Puts their names on the disk: a checkpoint is lost with the directory that it lies in.
    fn sync(&self) -> Result<(), FileError> {
        self.0
            .iter()
            .rev()
            .try_for_each(|made| sync_directory(parent(made)))
    }
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        // One that holds anything stays, and all above it.
        let _ = self.0.iter().try_for_each(fs::remove_dir);
    }
}

/// Makes `directory` if need be and locks it; `None` where its file system has no locks.
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
            // Whoever made the directory removed it in between: try again.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.exists() => {
                continue;
            }
            opened => opened.map_err(fail)?,
        };
        // Who only looks holds it for a moment.
        match hold_within(&file, A_LOOK).map_err(fail)? {
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
                    "the file system of {} has no locks: see to it that no other run uses it",
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

/// This process in words.
pub fn this_process() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    format!("process {} on {host}", std::process::id())
}

/// Who holds the lock, as it wrote itself.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = io::Read::by_ref(file).take(256).read_to_string(&mut text);
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

/// Whether `directory` holds what a run leaves that was ended before its first number: metrics
/// without a line, and nothing learned.
fn never_began(directory: &Path) -> bool {
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
        (true, false) if !never_began(directory) => (RunState::Unfinished, unfinished.join(", ")),
        (true, _) => (RunState::Empty, String::new()),
    }
}
