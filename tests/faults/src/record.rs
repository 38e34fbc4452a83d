//! Calls that change files -> a file of records in call order, each with its data.
//!
//! A record is: name, path, second path and bytes, each preceded by its length (u32), then a number
//! (i64); all little-endian.

use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libc::{off64_t, ssize_t};

/// Flags of an open call that creates or empties a file.
pub const CREATES: c_int = libc::O_CREAT | libc::O_TRUNC;

/// One call that succeeded.
pub struct Change<'a> {
    /// The name in the replay.
    pub name: &'a [u8],
    /// The changed path.
    pub path: &'a [u8],
    /// The second path of a move.
    pub to: &'a [u8],
    /// The written bytes.
    pub bytes: &'a [u8],
    /// The offset of `bytes`, a length, or flags.
    pub at: i64,
}

impl<'a> Change<'a> {
    /// A change of one path, without data.
    pub fn of(name: &'a [u8], path: &'a [u8]) -> Self {
        Change {
            name,
            path,
            to: &[],
            bytes: &[],
            at: 0,
        }
    }
}

struct Record {
    prefix: Vec<u8>,
    file: c_int,
}

static RECORD: OnceLock<Option<Record>> = OnceLock::new();
static ORDER: Mutex<()> = Mutex::new(());

/// Blocks the calls of other threads until it is dropped, if calls are recorded.
pub fn in_order() -> Option<MutexGuard<'static, ()>> {
    record().map(|_| ORDER.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Whether calls on `path` are recorded.
pub fn concerns(path: &[u8]) -> bool {
    record().is_some_and(|record| path.starts_with(&record.prefix))
}

/// Records a move or a link.
pub fn moved(name: &[u8], from: &[u8], to: &[u8], flags: i64) {
    changed(&Change {
        to,
        at: flags,
        ..Change::of(name, from)
    });
}

/// Records a change.
pub fn changed(change: &Change<'_>) {
    let Some(record) = record() else { return };
    if !concerns(change.path) && !concerns(change.to) {
        return;
    }
    let mut text = Vec::with_capacity(change.bytes.len() + 256);
    for part in [change.name, change.path, change.to, change.bytes] {
        text.extend_from_slice(&(part.len() as u32).to_le_bytes());
        text.extend_from_slice(part);
    }
    text.extend_from_slice(&change.at.to_le_bytes());
    let mut rest = text.as_slice();
    while !rest.is_empty() {
        // SAFETY: `rest` has so many bytes. The call below the wrappers is meant.
        let written =
            unsafe { libc::syscall(libc::SYS_write, record.file, rest.as_ptr(), rest.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => rest = &rest[written..],
            _ => return,
        }
    }
}

/// The bytes of a file at an offset, with any open mode.
pub fn read_back(file: c_int, offset: off64_t, length: ssize_t) -> Vec<u8> {
    let path = CString::new(format!("/proc/self/fd/{file}")).expect("no NUL");
    let mut bytes = vec![0_u8; usize::try_from(length).unwrap_or(0)];
    // SAFETY: the path ends in NUL, `bytes` has its length. The calls below the wrappers are meant.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let again = libc::syscall(libc::SYS_open, path.as_ptr(), flags);
        let found = libc::syscall(
            libc::SYS_pread64,
            again,
            bytes.as_mut_ptr(),
            bytes.len(),
            offset,
        );
        libc::syscall(libc::SYS_close, again);
        bytes.truncate(usize::try_from(found).unwrap_or(0));
    }
    bytes
}

fn record() -> Option<&'static Record> {
    let open = || {
        let path = CString::new(std::env::var_os("FAULT_RECORD")?.into_vec()).ok()?;
        let flags = libc::O_CREAT | libc::O_APPEND | libc::O_WRONLY | libc::O_CLOEXEC;
        // SAFETY: the path ends in NUL. The call below the wrappers is meant.
        let file = unsafe { libc::syscall(libc::SYS_open, path.as_ptr(), flags, 0o600) };
        let file = c_int::try_from(file).ok().filter(|&file| file >= 0)?;
        let prefix = std::env::var_os("FAULT_PREFIX")?.into_vec();
        Some(Record { prefix, file })
    };
    RECORD.get_or_init(open).as_ref()
}
