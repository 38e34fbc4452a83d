//! Calls of the host in their order -> pairs of tasks that use the same bytes although nothing
//! orders them.
//!
//! A task happens before another one where a chain of streams, events and waits of the host leads
//! from it to the other. The order in which tasks really run does not matter: one run shows every
//! missing wait between its tasks. Host threads count as one, so what the host waits for is done
//! for all calls that follow.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use espalier_interface::{Buffer, BufferRange, Event};

use crate::clock::Clock;

/// Accesses of a buffer after which those that the host has waited for are forgotten.
const MANY: usize = 256;

/// What a task does with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It only reads the bytes.
    Reads,
    /// It writes them, and may read them.
    Writes,
}

/// A range that a task uses.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The bytes.
    pub range: BufferRange,
    /// What is done with them.
    pub does: Does,
}

/// A call of the host, as far as it orders tasks or uses memory.
#[derive(Clone, Debug)]
pub enum Call {
    /// A task is put on a stream.
    Put {
        /// Index of the stream.
        stream: usize,
        /// What it is, for messages.
        what: Arc<str>,
        /// The ranges that it uses.
        accesses: Vec<Access>,
    },
    /// An event is recorded behind a stream's tasks.
    Record(usize, Event),
    /// A stream waits for an event.
    Wait(usize, Event),
    /// The host has waited for an event.
    HostKnows(Event),
    /// An event is freed.
    FreeEvent(Event),
    /// A buffer is freed.
    Free(Buffer),
}

/// A task as a race names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    what: Arc<str>,
    stream: usize,
    number: u64,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Named {
            what,
            stream,
            number,
        } = self;
        write!(f, "{what} (task {number} of stream {stream})")
    }
}

/// Two uses of the same bytes that nothing orders. The second is a task, or the host's `free`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Race {
    /// The task that was put first.
    pub first: Named,
    /// The other task; none where the host freed the buffer.
    pub second: Option<Named>,
    /// The buffer.
    pub buffer: Buffer,
    /// First byte that both use, and the first one after them.
    pub bytes: [u64; 2],
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([from, to], buffer) = (self.bytes, self.buffer.0);
        match &self.second {
            Some(second) => write!(f, "race: {} and {second}", self.first)?,
            None => write!(f, "race: {} and the host's `free`", self.first)?,
        }
        write!(
            f,
            " use bytes {from} to {to} of buffer {buffer}, and no event orders them"
        )
    }
}

/// A use of bytes that later tasks may conflict with.
struct Seen {
    task: Named,
    from: u64,
    to: u64,
    does: Does,
}

/// Follows the calls of the host.
#[derive(Default)]
pub struct Detector {
    /// For each stream what is done before its next task.
    streams: Vec<Clock>,
    /// What the host has waited for.
    host: Clock,
    events: HashMap<Event, Clock>,
    seen: HashMap<Buffer, Vec<Seen>>,
}

impl Detector {
    /// Follows a call; the first race that it makes.
    pub fn follow(&mut self, call: &Call) -> Option<Race> {
        match call {
            Call::Put {
                stream,
                what,
                accesses,
            } => self.put(*stream, what, accesses),
            Call::Record(stream, event) => {
                let clock = self.stream(*stream).clone();
                self.events.insert(*event, clock);
                None
            }
            Call::Wait(stream, event) => {
                let clock = self.events.get(event).cloned().unwrap_or_default();
                self.stream(*stream).join(&clock);
                None
            }
            Call::HostKnows(event) => {
                if let Some(clock) = self.events.get(event) {
                    self.host.join(clock);
                }
                None
            }
            Call::FreeEvent(event) => {
                self.events.remove(event);
                None
            }
            Call::Free(buffer) => self.free(*buffer),
        }
    }

    /// As [`Call::Record`], of an event that nothing is before.
    pub fn record_nothing(&mut self, event: Event) {
        self.events.insert(event, Clock::default());
    }

    fn stream(&mut self, stream: usize) -> &mut Clock {
        if self.streams.len() <= stream {
            self.streams.resize(stream + 1, Clock::default());
        }
        &mut self.streams[stream]
    }

    fn put(&mut self, stream: usize, what: &Arc<str>, accesses: &[Access]) -> Option<Race> {
        let host = self.host.clone();
        let clock = self.stream(stream);
        clock.join(&host);
        let number = clock.advance(stream);
        let clock = clock.clone();
        let task = Named {
            what: Arc::clone(what),
            stream,
            number,
        };
        let mut race = None;
        for access in accesses.iter().filter(|access| access.range.bytes > 0) {
            let seen = self.seen.entry(access.range.buffer).or_default();
            let new = Seen {
                task: task.clone(),
                from: access.range.offset,
                to: access.range.offset + access.range.bytes,
                does: access.does,
            };
            let found = seen.iter().find(|old| old.races(&new, &clock));
            race = race.or_else(|| found.map(|old| old.race(&new, access.range.buffer)));
            seen.retain(|old| !new.stands_for(old));
            if seen.len() >= MANY {
                seen.retain(|old| host.of(old.task.stream) < old.task.number);
            }
            seen.push(new);
        }
        race
    }

    fn free(&mut self, buffer: Buffer) -> Option<Race> {
        let seen = self.seen.remove(&buffer)?;
        let unknown = |old: &&Seen| self.host.of(old.task.stream) < old.task.number;
        let old = seen.iter().find(unknown)?;
        Some(Race {
            first: old.task.clone(),
            second: None,
            buffer,
            bytes: [old.from, old.to],
        })
    }
}

impl Seen {
    /// Whether `new`, whose stream knows `clock`, uses bytes of this one and is not ordered behind
    /// it.
    fn races(&self, new: &Seen, clock: &Clock) -> bool {
        let overlap = self.from < new.to && new.from < self.to;
        let conflict = self.does == Does::Writes || new.does == Does::Writes;
        overlap && conflict && clock.of(self.task.stream) < self.task.number
    }

    /// Whether whatever races with `old` also races with this later use by the same stream.
    fn stands_for(&self, old: &Seen) -> bool {
        self.task.stream == old.task.stream
            && self.from <= old.from
            && old.to <= self.to
            && (self.does == Does::Writes || old.does == Does::Reads)
    }

    fn race(&self, new: &Seen, buffer: Buffer) -> Race {
        Race {
            first: self.task.clone(),
            second: Some(new.task.clone()),
            buffer,
            bytes: [self.from.max(new.from), self.to.min(new.to)],
        }
    }
}
