//! The notes of a run -> a list of them.

use std::sync::Mutex;

use espalier_engine::observer::{Event, Observer};

/// The notes of a run.
#[derive(Default)]
pub struct Notes(pub Mutex<Vec<String>>);

impl Observer for Notes {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Note(note) = event {
            self.0.lock().expect("a note").push((*note).to_owned());
        }
    }
}
