//! How a process ends whose threads do not all return: its last line and its exit code.

use std::sync::OnceLock;

use crate::Error;

/// Prints an error and ends the process with its exit code.
pub type LastWord = Box<dyn Fn(&Error) + Send + Sync>;

static LAST_WORD: OnceLock<LastWord> = OnceLock::new();

/// Sets how this process ends where a thread does not return: `say` prints the error as the last
/// line and exits at once. It is called where a rank is lost and a thread hangs, where a plugin's
/// call does not return, and where a signal arrives while the process waits for others to join.
/// Without it the process waits for such a thread. The first one set stays.
pub fn on_last_word(say: impl Fn(&Error) + Send + Sync + 'static) {
    let _ = LAST_WORD.set(Box::new(say));
}

/// The function that ends this process, where one was set.
pub fn last_word() -> Option<&'static LastWord> {
    LAST_WORD.get()
}
