//! Messages to the user -> lines on standard error, above the bars that are drawn there, and lines
//! in the `log.txt` of an output directory.
//!
//! Failed output is ignored: unwritten lines are dropped, failed bars are not drawn again, and the
//! work continues. Nothing else in this program writes to standard error, but for the handler of
//! faults.

mod log_file;
mod screen;

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use espalier_system::failure::one_line;
use espalier_system::shell;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use log_file::LogFile;
use screen::Screen;

/// Most redraws of bars per second.
const DRAWN_PER_SEC: u8 = 20;

/// How often the last line tries to lock a log that another thread holds, and the time between two
/// attempts.
const QUESTIONS: (u32, Duration) = (20, Duration::from_millis(10));

/// How long the last line waits for a blocked terminal.
const WAITED: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

static BARS: LazyLock<MultiProgress> = LazyLock::new(|| {
    let target = if ProgressDrawTarget::stderr().is_hidden() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::term_like_with_hz(Box::new(Screen::new()), DRAWN_PER_SEC)
    };
    MultiProgress::with_draw_target(target)
});

/// Set once a line could not be shown.
static UNSHOWN: AtomicBool = AtomicBool::new(false);

static LOG: Mutex<LogFile> = Mutex::new(LogFile::none());

/// The log's descriptor, for a handler that must not lock; -1 where there is none.
static LOG_DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// Keeps a line in the log, and shows it: after the warning where the log cannot be written. Its
/// commands have the name by which the program was started.
pub fn say(line: &str) {
    let line = shell::by_own_name(line);
    keep(&line);
    show(&line);
}

/// Shows a line on standard error.
pub fn show(line: &str) {
    show_text(&format!("{line}\n"));
}

/// Shows text that need not end a line, such as an input prompt.
pub fn show_text(text: &str) {
    BARS.suspend(|| write(text.as_bytes()));
}

/// Keeps a line in the log, with its time.
pub fn keep(line: &str) {
    keep_text(&log_file::stamped(line));
}

/// The last line of a process that does not wait for its threads, nor for locks that they hold.
pub fn say_last(line: &str) {
    let line = shell::by_own_name(line);
    keep_last(&line);
    show_last(format!("{line}\n").as_bytes());
}

/// Writes to standard error without its lock, which a thread may hold that waits for a blocked
/// terminal.
#[allow(unsafe_code)] // A descriptor of standard error that is borrowed, not locked.
fn show_last(mut text: &[u8]) {
    // SAFETY: this program never closes standard error.
    let standard_error = unsafe { BorrowedFd::borrow_raw(2) };
    let mut looked_at = [PollFd::new(&standard_error, PollFlags::OUT)];
    while !text.is_empty() && poll(&mut looked_at, Some(&WAITED)).is_ok_and(|ready| ready > 0) {
        match rustix::io::write(standard_error, text) {
            Ok(written) => text = &text[written..],
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Adds a bar below the present ones.
pub fn add(bar: ProgressBar) -> ProgressBar {
    BARS.add(bar)
}

/// Whether bars are drawn: standard error is a terminal that can move its cursor.
pub fn draws() -> bool {
    !BARS.is_hidden()
}

/// From now on lines are buffered for the `log.txt` of the output directory `out`, until this
/// process owns the directory.
pub fn await_log(out: &Path) {
    locked().wait(out);
}

/// Writes all lines into the log, also the buffered ones: this process owns the output directory.
/// An open log stays open.
pub fn open_log() {
    let opened = locked().open();
    settle(opened);
}

/// Removes the log where the run left nothing else and all its lines were shown. So a run that did
/// not start leaves its output directory unchanged.
pub fn withdraw_log() {
    if !UNSHOWN.load(Ordering::Relaxed) {
        // Before its file is closed: another file may get the number.
        LOG_DESCRIPTOR.store(-1, Ordering::Relaxed);
        locked().withdraw();
        settle(Ok(()));
    }
}

/// The descriptor of the open log, for a handler of faults.
pub fn log_descriptor() -> Option<i32> {
    let descriptor = LOG_DESCRIPTOR.load(Ordering::Relaxed);
    (descriptor >= 0).then_some(descriptor)
}

/// Writes panics into the log, too.
pub fn keep_panics() {
    // The hook drops lines that cannot be written.
    let shown = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        shown(panic);
        keep_last(&one_line(&panic.to_string()));
    }));
}

/// Standard error, for a writer of lines.
pub struct TerminalWriter;

/// The log, for a writer of lines that have their own time.
pub struct LogWriter;

impl Write for TerminalWriter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        BARS.suspend(|| write(text));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for LogWriter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        keep_text(&String::from_utf8_lossy(text));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes as much as possible to standard error.
fn write(text: &[u8]) {
    let mut standard_error = io::stderr().lock();
    if standard_error.write_all(text).is_err() {
        UNSHOWN.store(true, Ordering::Relaxed);
    }
}

fn keep_text(text: &str) {
    let kept = locked().keep(text);
    settle(kept);
}

/// As [`keep`], but returns without writing where another thread holds the log.
fn keep_last(line: &str) {
    for _ in 0..QUESTIONS.0 {
        match LOG.try_lock() {
            Ok(mut log) => return drop(log.keep(&log_file::stamped(line))),
            Err(TryLockError::Poisoned(log)) => {
                return drop(log.into_inner().keep(&log_file::stamped(line)));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(QUESTIONS.1),
        }
    }
}

/// Prints why the log ends, where it does.
fn settle(done: Result<(), String>) {
    let descriptor = locked().descriptor().unwrap_or(-1);
    LOG_DESCRIPTOR.store(descriptor, Ordering::Relaxed);
    if let Err(why) = done {
        show(&format!("warning: {why}; messages are shown here alone"));
    }
}

fn locked() -> std::sync::MutexGuard<'static, LogFile> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}
