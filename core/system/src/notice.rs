//! Notices that are printed at every verbosity, through the function that the host sets.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Prints a line to the user.
type Say = Box<dyn Fn(&str) + Send + Sync>;

static SAY: OnceLock<Say> = OnceLock::new();

/// Lines printed by [`once`].
static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Sets the function that prints a line to the user; only the first call has an effect. Without
/// one, lines go to the log as warnings.
pub fn on_notice(say: impl Fn(&str) + Send + Sync + 'static) {
    let _ = SAY.set(Box::new(say));
}

/// Prints `line`.
pub fn say(line: &str) {
    match SAY.get() {
        Some(say) => say(line),
        None => tracing::warn!("{line}"),
    }
}

/// Prints `line` unless this process printed it before. A process that compares or plans has many
/// sessions.
pub fn once(line: &str) {
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = printed.insert(line.to_owned());
    drop(printed);
    if is_new {
        say(line);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn once_prints_a_line_only_once() {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = Arc::clone(&lines);
        on_notice(move |line| sink.lock().expect("no panic").push(line.to_owned()));
        ["a", "a", "b"].into_iter().for_each(once);
        say("a");
        let own = |line: &&String| ["a", "b"].contains(&line.as_str());
        let lines: Vec<String> = lines
            .lock()
            .expect("no panic")
            .iter()
            .filter(own)
            .cloned()
            .collect();
        assert_eq!(lines, ["a", "b", "a"]);
    }
}
