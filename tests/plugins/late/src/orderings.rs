//! The calls of a run -> for each `record` and `wait` that orders two streams, the race that would
//! be there without it.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use espalier_interface::Event;
use serde_json::json;

use crate::races::{Call, Detector, Race};

/// A call that orders streams, left out.
#[derive(Clone, Debug)]
pub struct Ordering {
    /// `record` or `wait`.
    pub call: &'static str,
    /// Its number among the calls of that name, from 1 on: that of `drop_record` and `drop_wait`.
    pub number: u64,
    /// Index of its stream.
    pub stream: usize,
    /// What the stream that waits is given next; none where that is nothing.
    pub next: Option<Arc<str>>,
    /// The first race without it; none where it orders nothing that is not ordered anyway.
    pub race: Option<Race>,
}

/// Every call that orders streams, with the first race that the run has without it. A record whose
/// event only the host waits for orders no streams.
pub fn orderings(calls: &[Call]) -> Vec<Ordering> {
    let waited = calls.iter().filter_map(|call| match call {
        Call::Wait(_, event) => Some(*event),
        _ => None,
    });
    let waited: HashSet<Event> = waited.collect();
    let [mut records, mut waits] = [0, 0];
    let mut found = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let (call, number, stream) = match call {
            Call::Record(stream, event) if event.0 <= MOST_EVENTS => {
                records += 1;
                if !waited.contains(event) {
                    continue;
                }
                ("record", records, *stream)
            }
            Call::Wait(stream, _) => {
                waits += 1;
                ("wait", waits, *stream)
            }
            _ => continue,
        };
        found.push(Ordering {
            call,
            number,
            stream,
            next: next(calls, at),
            race: without(calls, at),
        });
    }
    found
}

/// Events above this one are those of the host's own waits, which `record` did not make.
pub const MOST_EVENTS: u64 = u64::MAX / 2;

/// What the stream that waits is given after call number `at`, which is a wait or a record that a
/// stream waits for.
fn next(calls: &[Call], at: usize) -> Option<Arc<str>> {
    let later = &calls[at..];
    let (at, waits) = later.iter().enumerate().find_map(|(at, call)| {
        let recorded = match &later[0] {
            Call::Record(_, event) => Some(*event),
            _ => None,
        };
        match call {
            Call::Wait(stream, event) if recorded.is_none_or(|one| one == *event) => {
                Some((at, *stream))
            }
            _ => None,
        }
    })?;
    later[at..].iter().find_map(|call| match call {
        Call::Put { stream, what, .. } if *stream == waits => Some(Arc::clone(what)),
        _ => None,
    })
}

/// The first race of a run without call number `at`.
fn without(calls: &[Call], at: usize) -> Option<Race> {
    let mut detector = Detector::default();
    calls.iter().enumerate().find_map(|(index, call)| {
        if index != at {
            return detector.follow(call);
        }
        if let Call::Record(_, event) = call {
            detector.record_nothing(*event);
        }
        None
    })
}

/// Appends a line of JSON for each ordering to `path`.
///
/// # Errors
/// Where the file cannot be written.
pub fn append(path: &Path, device: u32, found: &[Ordering]) -> io::Result<()> {
    let mut text = String::new();
    for ordering in found {
        let race = ordering.race.as_ref().map(ToString::to_string);
        let line = json!({
            "device": device,
            "call": ordering.call,
            "number": ordering.number,
            "stream": ordering.stream,
            "next": ordering.next.as_deref(),
            "race": race,
        });
        text += &format!("{line}\n");
    }
    let mut file = std::fs::OpenOptions::new();
    let mut file = file.create(true).append(true).open(path)?;
    file.write_all(text.as_bytes())
}
