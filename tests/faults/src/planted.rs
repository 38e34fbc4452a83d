//! Bugs that a test plants into a program to check that they are detected: a program that skips a
//! step of a save.

use std::ffi::{CString, c_int};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The bug that `FAULT_PLANT` names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// Directories are never synced.
    NoDirectorySync,
    /// A directory is renamed to its final name before the last file in it is.
    EarlyCommit,
}

/// A delayed rename: from, to.
static HELD_BACK: Mutex<Option<(Vec<u8>, Vec<u8>)>> = Mutex::new(None);

fn bug() -> Bug {
    static BUG: OnceLock<Bug> = OnceLock::new();
    *BUG.get_or_init(|| match std::env::var("FAULT_PLANT").as_deref() {
        Ok("no-directory-sync") => Bug::NoDirectorySync,
        Ok("early-commit") => Bug::EarlyCommit,
        _ => Bug::None,
    })
}

/// Whether the sync of this open file is skipped.
pub fn leaves_unsynced(file: c_int) -> bool {
    if bug() != Bug::NoDirectorySync {
        return false;
    }
    // SAFETY: all zeros is a valid `stat`, and the call fills it.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        libc::fstat(file, &mut found) == 0 && found.st_mode & libc::S_IFMT == libc::S_IFDIR
    }
}

/// Whether this rename waits for that of its directory: it gives a checkpoint's last file its name.
pub fn holds_back(from: &[u8], to: &[u8]) -> bool {
    let waits = bug() == Bug::EarlyCommit && to.ends_with(b".partial/checkpoint.json");
    if waits {
        *HELD_BACK.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((from.to_vec(), to.to_vec()));
    }
    waits
}

/// The rename that waited for the directory's rename from `from` to `to`, with its current paths.
pub fn held_back(from: &[u8], to: &[u8]) -> Option<(CString, CString)> {
    let mut held = HELD_BACK.lock().unwrap_or_else(PoisonError::into_inner);
    let is_inside = |(file, _): &(Vec<u8>, Vec<u8>)| file.starts_with(&[from, b"/"].concat());
    let (file, named) = held.take_if(|held| is_inside(held))?;
    let now = |path: &[u8]| CString::new([to, &path[from.len()..]].concat()).ok();
    Some((now(&file)?, now(&named)?))
}
