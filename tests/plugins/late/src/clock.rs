//! For each stream, how many of its tasks are known to be done at some point.

/// A vector clock over the streams of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(Vec<u64>);

impl Clock {
    /// Tasks of `stream` that are done.
    pub fn of(&self, stream: usize) -> u64 {
        self.0.get(stream).copied().unwrap_or(0)
    }

    /// One more task of `stream`; returns its number, from 1 on.
    pub fn advance(&mut self, stream: usize) -> u64 {
        self.reach(stream, self.of(stream) + 1);
        self.of(stream)
    }

    /// Adds all that `other` knows.
    pub fn join(&mut self, other: &Clock) {
        for (stream, &tasks) in other.0.iter().enumerate() {
            self.reach(stream, tasks);
        }
    }

    fn reach(&mut self, stream: usize, tasks: u64) {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] = self.0[stream].max(tasks);
    }
}
