//! The calls of the host -> races, and a file of the calls that order streams.

use std::io;
use std::path::PathBuf;

use espalier_interface::Event;

use crate::orderings::{self, MOST_EVENTS};
use crate::races::{Call, Detector, Race};
use crate::settings::{Races, Settings};

/// Follows the calls of a device.
pub struct Follower {
    detector: Detector,
    races: Races,
    /// Waits of the host so far, each with an event of its own.
    host_waits: u64,
    device: u32,
    /// The calls so far and the file that they are examined for.
    kept: Option<(PathBuf, Vec<Call>)>,
}

impl Follower {
    /// A follower of device number `device`.
    pub fn new(settings: &Settings, device: u32) -> Self {
        let path = settings.orderings.clone();
        Follower {
            detector: Detector::default(),
            races: settings.races,
            host_waits: 0,
            device,
            kept: path.map(|path| (path, Vec::new())),
        }
    }

    /// The host has done the wait that began with `event`.
    pub fn host_has_waited(&mut self, event: Event) {
        self.follow(Call::HostKnows(event));
        self.follow(Call::FreeEvent(event));
    }

    /// Follows a call; the first race that it makes.
    pub fn follow(&mut self, call: Call) -> Option<Race> {
        let race = self.detector.follow(&call);
        if let Some((_, calls)) = &mut self.kept {
            calls.push(call);
        }
        race
    }

    /// The host begins to wait for all tasks that are on `stream` now. The event says so when it
    /// has.
    pub fn host_waits(&mut self, stream: usize) -> Event {
        self.host_waits += 1;
        let event = Event(MOST_EVENTS + self.host_waits);
        self.follow(Call::Record(stream, event));
        event
    }

    /// An event is recorded that is complete at once.
    pub fn records_nothing(&mut self, event: Event) {
        self.detector.record_nothing(event);
    }

    /// Whether a race is a failure.
    pub fn reports(&self) -> bool {
        self.races == Races::Report
    }

    /// Writes the calls that order streams, each with the race that there is without it.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn write(&self) -> io::Result<()> {
        match &self.kept {
            Some((path, calls)) => {
                orderings::append(path, self.device, &orderings::orderings(calls))
            }
            None => Ok(()),
        }
    }
}
