//! Environment variables -> the call that fails, and how.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The action for a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is made.
    Pass,
    /// It is not made, and this is its errno.
    Fail(c_int),
    /// It writes half of what it was given.
    Short,
}

/// How the chosen call fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Errno(c_int),
    /// From that call on, every call that takes disk space fails.
    DiskFull,
    /// From that call on, every call that changes anything fails.
    ReadOnly,
    Short,
    /// The process is killed instead.
    Kill,
}

/// Calls that take no disk space but are refused on a read-only file system.
const CHANGES: [&[u8]; 6] = [
    b"rename",
    b"renameat",
    b"renameat2",
    b"unlink",
    b"unlinkat",
    b"rmdir",
];

/// Duration of a slow call.
const SLOW: Duration = Duration::from_millis(300);

struct Plan {
    /// Calls below this path count.
    prefix: Vec<u8>,
    /// Counting starts at the first call whose path contains this; empty: all count.
    from: Vec<u8>,
    /// The number of the call, from 1; 0 passes all.
    call: u64,
    fault: Fault,
    /// Each counted call whose path contains this takes [`SLOW`]; empty: none.
    slow: Vec<u8>,
    /// The log of every counted call.
    log: Option<c_int>,
}

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Whether any call can fail at all.
pub fn is_on() -> bool {
    plan().is_some()
}

/// Counts the call `name` on `path` if it is below the prefix, and returns its action.
pub fn decide(name: &CStr, path: &[u8], takes_room: bool) -> Action {
    let Some(plan) = plan() else {
        return Action::Pass;
    };
    if !path.starts_with(&plan.prefix) {
        return Action::Pass;
    }
    if CALLS.load(Ordering::SeqCst) == 0 && !contains(path, &plan.from) {
        return Action::Pass;
    }
    let number = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
    plan.note(name, path);
    if !plan.slow.is_empty() && contains(path, &plan.slow) {
        thread::sleep(SLOW);
    }
    if plan.fault == Fault::DiskFull && plan.call != 0 && number >= plan.call && takes_room {
        return Action::Fail(libc::ENOSPC);
    }
    let changes = takes_room || CHANGES.contains(&name.to_bytes());
    if plan.fault == Fault::ReadOnly && plan.call != 0 && number >= plan.call && changes {
        return Action::Fail(libc::EROFS);
    }
    if number != plan.call {
        return Action::Pass;
    }
    match plan.fault {
        Fault::Errno(errno) => Action::Fail(errno),
        Fault::DiskFull | Fault::ReadOnly => Action::Pass,
        Fault::Short => Action::Short,
        Fault::Kill => {
            // SAFETY: a process may end itself.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            Action::Pass
        }
    }
}

impl Plan {
    fn from_environment() -> Option<Plan> {
        let text = |name: &str| std::env::var(name).ok();
        let prefix = std::env::var_os("FAULT_PREFIX")?.into_vec();
        let fault = match text("FAULT_KIND").as_deref() {
            Some("enospc") => Fault::Errno(libc::ENOSPC),
            Some("erofs") => Fault::Errno(libc::EROFS),
            Some("edquot") => Fault::Errno(libc::EDQUOT),
            Some("readonly") => Fault::ReadOnly,
            Some("full") => Fault::DiskFull,
            Some("short") => Fault::Short,
            Some("kill") => Fault::Kill,
            _ => Fault::Errno(libc::EIO),
        };
        let log = std::env::var_os("FAULT_LOG").and_then(|path| {
            let path = CString::new(path.into_vec()).ok()?;
            let flags = libc::O_CREAT | libc::O_APPEND | libc::O_WRONLY | libc::O_CLOEXEC;
            // SAFETY: the path ends in NUL. The call below the wrappers is meant.
            let file = unsafe { libc::syscall(libc::SYS_open, path.as_ptr(), flags, 0o600) };
            c_int::try_from(file).ok().filter(|&file| file >= 0)
        });
        Some(Plan {
            prefix,
            from: std::env::var_os("FAULT_FROM")
                .unwrap_or_default()
                .into_vec(),
            call: text("FAULT_CALL").and_then(|n| n.parse().ok()).unwrap_or(0),
            fault,
            slow: std::env::var_os("FAULT_SLOW")
                .unwrap_or_default()
                .into_vec(),
            log,
        })
    }

    fn note(&self, name: &CStr, path: &[u8]) {
        let Some(log) = self.log else { return };
        let line = [name.to_bytes(), b" ", path, b"\n"].concat();
        let (start, length) = (line.as_ptr().cast::<c_char>(), line.len());
        // SAFETY: `line` has `length` bytes. The call below the wrappers is meant.
        unsafe { libc::syscall(libc::SYS_write, log, start, length) };
    }
}

fn contains(path: &[u8], part: &[u8]) -> bool {
    part.is_empty() || path.windows(part.len()).any(|window| window == part)
}

fn plan() -> Option<&'static Plan> {
    PLAN.get_or_init(Plan::from_environment).as_ref()
}
