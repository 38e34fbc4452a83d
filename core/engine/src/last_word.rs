//! The error of a process whose threads do not all return -> its last line and its exit code.

use std::sync::OnceLock;

use crate::Error;

/// Says an error for good and ends the process with its exit code.
pub type LastWord = Box<dyn Fn(&Error) + Send + Sync>;

static LAST_WORD: OnceLock<LastWord> = OnceLock::new();

/// Sets what ends this process where a rank is lost and a thread hangs, a plugin's call does not return, or a signal comes
/// while it waits for others to begin: it prints the error as the last line and exits at once, running nothing else. Without
/// it such a thread is waited for. The first one set stays.
pub fn on_last_word(say: impl Fn(&Error) + Send + Sync + 'static) {
    let _ = LAST_WORD.set(Box::new(say));
}

/// What ends this process, where that was set.
pub fn last_word() -> Option<&'static LastWord> {
    LAST_WORD.get()
}
