//! Streams and events by number: no work is ever pending.

use espalier_interface::{Event, PluginError, Result, Stream};

/// The streams beside the compute stream, and the events.
#[derive(Default)]
pub struct Lanes {
    streams: u64,
    events: u64,
}

impl Lanes {
    /// A new stream.
    pub fn open(&mut self) -> Stream {
        self.streams += 1;
        Stream(self.streams)
    }

    /// Whether a stream exists.
    pub fn check(&self, stream: Stream) -> Result<()> {
        if stream.0 <= self.streams {
            return Ok(());
        }
        Err(PluginError::invalid(format!(
            "there is no stream {}",
            stream.0
        )))
    }

    /// A new event.
    pub fn record(&mut self, stream: Stream) -> Result<Event> {
        self.check(stream)?;
        self.events += 1;
        Ok(Event(self.events))
    }

    /// Whether both exist.
    pub fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.check(stream)?;
        if (1..=self.events).contains(&event.0) {
            return Ok(());
        }
        Err(PluginError::invalid(format!(
            "there is no event {}",
            event.0
        )))
    }
}
