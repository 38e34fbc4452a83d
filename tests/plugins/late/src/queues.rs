//! Streams as queues of tasks, and events as points in them.

use std::collections::{HashMap, VecDeque};

use espalier_interface::{Event, PluginError, Result, Stream};

use crate::task::Task;

/// A point of a stream: it is reached when the stream's first `position` tasks are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Index of the stream.
    pub stream: usize,
    /// Tasks of the stream before it.
    pub position: u64,
}

/// The tasks of a stream.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Task>,
    /// Tasks that were ever put on it.
    put: u64,
}

/// All streams of a device.
pub struct Queues {
    streams: Vec<Queue>,
    events: HashMap<Event, Point>,
    last_event: u64,
}

impl Queues {
    /// The compute stream alone.
    pub fn new() -> Self {
        Queues {
            streams: vec![Queue::default()],
            events: HashMap::new(),
            last_event: 0,
        }
    }

    /// A new stream.
    pub fn open(&mut self) -> Stream {
        self.streams.push(Queue::default());
        Stream(self.streams.len() as u64 - 1)
    }

    /// Number of streams.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Number of events.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Tasks that wait on all streams.
    pub fn waiting(&self) -> usize {
        self.streams.iter().map(|queue| queue.waiting.len()).sum()
    }

    /// The index of a stream.
    ///
    /// # Errors
    /// `INVALID` where it does not exist.
    pub fn index(&self, stream: Stream) -> Result<usize> {
        if stream.0 < self.streams.len() as u64 {
            return Ok(stream.0 as usize);
        }
        let message = format!("stream {} does not exist", stream.0);
        Err(PluginError::invalid(message))
    }

    /// Puts a task on a stream.
    pub fn put(&mut self, stream: usize, task: Task) {
        let queue = &mut self.streams[stream];
        queue.waiting.push_back(task);
        queue.put += 1;
    }

    /// The point behind all tasks that are on a stream now.
    pub fn end(&self, stream: usize) -> Point {
        let position = self.streams[stream].put;
        Point { stream, position }
    }

    /// A new event at `point`.
    pub fn record(&mut self, point: Point) -> Event {
        self.last_event += 1;
        let event = Event(self.last_event);
        self.events.insert(event, point);
        event
    }

    /// The point of an event.
    ///
    /// # Errors
    /// `INVALID` where it does not exist.
    pub fn point(&self, event: Event) -> Result<Point> {
        let found = self.events.get(&event).copied();
        found.ok_or_else(|| PluginError::invalid(format!("event {} does not exist", event.0)))
    }

    /// Frees an event.
    ///
    /// # Errors
    /// `INVALID` where it does not exist.
    pub fn free_event(&mut self, event: Event) -> Result<()> {
        let freed = self.events.remove(&event).map(|_| ());
        freed.ok_or_else(|| PluginError::invalid(format!("event {} does not exist", event.0)))
    }

    /// Whether all tasks before a point are done.
    pub fn is_reached(&self, point: Point) -> bool {
        let queue = &self.streams[point.stream];
        queue.put - queue.waiting.len() as u64 >= point.position
    }

    /// Whether the first task of a stream may run: it exists, and is no wait for a point that is
    /// not reached and no pause that is not over.
    pub fn is_ready(&self, stream: usize) -> bool {
        match self.streams[stream].waiting.front() {
            None => false,
            Some(Task::Wait(point)) => self.is_reached(*point),
            Some(Task::Pause(pause)) => pause.is_over(),
            Some(_) => true,
        }
    }

    /// Whether a stream is held back by a pause that is not over.
    pub fn pauses(&self, stream: usize) -> bool {
        match self.streams[stream].waiting.front() {
            Some(Task::Pause(pause)) => !pause.is_over(),
            _ => false,
        }
    }

    /// The stream whose first task must run next so that `point` is reached; none where it is.
    ///
    /// A wait is put on a stream after the point that it waits for, so waits never form a circle.
    pub fn next_for(&self, point: Point) -> Option<usize> {
        if self.is_reached(point) {
            return None;
        }
        let mut stream = point.stream;
        while let Some(Task::Wait(awaited)) = self.streams[stream].waiting.front() {
            if self.is_reached(*awaited) {
                break;
            }
            stream = awaited.stream;
        }
        Some(stream)
    }

    /// Takes the first task of a stream; it counts as done.
    pub fn take(&mut self, stream: usize) -> Option<Task> {
        self.streams[stream].waiting.pop_front()
    }
}
