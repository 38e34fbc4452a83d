//! What a user should know however little is shown -> said, by whoever runs the process.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Says a line to the user.
type Say = Box<dyn Fn(&str) + Send + Sync>;

static SAY: OnceLock<Say> = OnceLock::new();

/// What was said by [`once`].
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Sets what says a line to the user; without it lines go to the log, as warnings. The first one
/// set stays.
pub fn on_notice(say: impl Fn(&str) + Send + Sync + 'static) {
    let _ = SAY.set(Box::new(say));
}

/// Says `line`.
pub fn say(line: &str) {
    match SAY.get() {
        Some(say) => say(line),
        None => tracing::warn!("{line}"),
    }
}

/// Says `line`, unless this process said it before: it has many sessions where it compares or
/// plans.
pub fn once(line: &str) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = said.insert(line.to_owned());
    drop(said);
    if is_new {
        say(line);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_line_is_said_once_if_asked_for_that() {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let ear = Arc::clone(&heard);
        on_notice(move |line| ear.lock().expect("no panic").push(line.to_owned()));
        ["a", "a", "b"].into_iter().for_each(once);
        say("a");
        let ours = |line: &&String| ["a", "b"].contains(&line.as_str());
        let heard: Vec<String> = heard
            .lock()
            .expect("no panic")
            .iter()
            .filter(ours)
            .cloned()
            .collect();
        assert_eq!(heard, ["a", "b", "a"]);
    }
}
