//! Events of a command -> lines of JSON on a descriptor, for programs that run this one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use espalier_engine::observer::{Event, Observer};
use espalier_system::failure::UsageError;
use espalier_trainer::error::Error;
use serde_json::{Value as Json, json};

static EVENTS: OnceLock<Events> = OnceLock::new();

/// Where events are written, until the reader is gone.
pub struct Events(Mutex<Option<File>>);

/// Writes the events of this process to descriptor `number`, which its parent has opened.
///
/// # Errors
/// A descriptor that is not open for writing.
pub fn start(number: u32) -> Result<(), Error> {
    let path = format!("/proc/self/fd/{number}");
    let opened = OpenOptions::new().write(true).open(path);
    let file = opened.map_err(|error| {
        Error::Usage(UsageError {
            message: format!(
                "--events {number}: expected a descriptor that is open for writing: {error}"
            ),
            next_step: "open it, as a shell does: --events 3 3>events.jsonl".to_owned(),
        })
    })?;
    // The process starts once.
    let _ = EVENTS.set(Events(Mutex::new(Some(file))));
    Ok(())
}

/// The observer that writes them, where they were asked for.
pub fn observer() -> Option<&'static dyn Observer> {
    EVENTS.get().map(|events| events as &dyn Observer)
}

impl Events {
    /// Writes a line. Where nobody reads any more, the run goes on without.
    fn put(&self, line: &Json) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.as_mut().map(|file| write_line(file, line));
        if let Some(Err(error)) = written {
            tracing::debug!("events end: {error}");
            *file = None;
        }
    }
}

fn write_line(file: &mut File, line: &Json) -> io::Result<()> {
    file.write_all(format!("{line}\n").as_bytes())
}

impl Observer for Events {
    fn observe(&self, event: &Event<'_>) {
        if let Some(line) = line(event) {
            self.put(&line);
        }
    }
}

/// The line of an event.
fn line(event: &Event<'_>) -> Option<Json> {
    let progress = |work: &str, done: u64, total: u64| {
        Some(json!({"event": "progress", "work": work, "done": done, "total": total}))
    };
    let path = |name: &str, path: &Path| Some(json!({"event": name, "path": path}));
    match event {
        Event::RunStarted(summary) => named("started", summary),
        Event::StepFinished(metrics) => named("step", metrics),
        Event::Evaluated(metrics) => named("evaluation", metrics),
        Event::ReadProgress {
            bytes, total_bytes, ..
        } => progress("reading", *bytes, *total_bytes),
        Event::LoadProgress {
            bytes, total_bytes, ..
        } => progress("loading", *bytes, *total_bytes),
        Event::CalibrationProgress { done, total, .. } => progress("calibrating", *done, *total),
        Event::WriteProgress { done, total, .. } => progress("writing", *done, *total),
        Event::EvalProgress { done, total } => progress("evaluating", *done, *total),
        Event::AnswerProgress { done, total } => progress("answering", *done, *total),
        Event::OptionMeasured { done, total, .. } => progress("measuring", *done, *total),
        Event::Saved(saved) => path("saved", saved),
        Event::RunEnded(folder) => path("ended", folder),
        Event::Note(text) => Some(json!({"event": "note", "text": text})),
        Event::Warning(text) => Some(json!({"event": "warning", "text": text})),
        _ => None,
    }
}

/// The fields of `of`, with the event's name first.
fn named(event: &str, of: &impl serde::Serialize) -> Option<Json> {
    let mut line = json!({"event": event});
    let Ok(Json::Object(fields)) = serde_json::to_value(of) else {
        return None;
    };
    line.as_object_mut()?.extend(fields);
    Some(line)
}
