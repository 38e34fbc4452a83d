//! Programs on a few buffers and streams, and the waits that their steps need.

use espalier_interface::random::{Purpose, key, philox};

/// Streams of a program, the compute stream included.
pub const STREAMS: usize = 3;

/// Buffers of a program.
pub const BUFFERS: usize = 6;

/// Steps of a random program.
const STEPS: u32 = 60;

/// What a step does to buffers, given by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamTask {
    /// Writes elements that follow from `seed`.
    Upload { to: usize, seed: u64 },
    /// Copies a buffer.
    Copy { from: usize, to: usize },
    /// Writes the sum of two buffers to a third one.
    Add { a: usize, b: usize, to: usize },
}

/// A step and the stream that it is put on.
#[derive(Clone, Debug)]
pub struct Placed {
    pub stream: usize,
    pub step: StreamTask,
    /// Earlier steps of other streams that it has to wait for.
    pub waits: Vec<usize>,
}

/// Steps in the order in which they are put on their streams.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub steps: Vec<Placed>,
}

impl StreamTask {
    fn reads(self) -> Vec<usize> {
        match self {
            StreamTask::Upload { .. } => Vec::new(),
            StreamTask::Copy { from, .. } => vec![from],
            StreamTask::Add { a, b, .. } => vec![a, b],
        }
    }

    fn writes(self) -> usize {
        match self {
            StreamTask::Upload { to, .. }
            | StreamTask::Copy { to, .. }
            | StreamTask::Add { to, .. } => to,
        }
    }

    /// Whether the order of the two matters.
    fn conflicts(self, other: StreamTask) -> bool {
        self.writes() == other.writes()
            || self.reads().contains(&other.writes())
            || other.reads().contains(&self.writes())
    }
}

impl Program {
    /// Chains of sums on one stream whose results a second one copies and a third one adds up,
    /// while the first runs.
    pub fn relay() -> Program {
        let mut program = Program::default();
        for (to, seed) in [(0, 0), (1, 1), (2, 2), (3, 3)] {
            program.put(0, StreamTask::Upload { to, seed });
        }
        for _ in 0..4 {
            for _ in 0..6 {
                program.put(1, StreamTask::Add { a: 0, b: 1, to: 4 });
                program.put(1, StreamTask::Add { a: 4, b: 2, to: 0 });
            }
            program.put(2, StreamTask::Copy { from: 0, to: 5 });
            // The next round writes what is still read here and before, unless it waits.
            program.put(0, StreamTask::Add { a: 3, b: 5, to: 3 });
        }
        program
    }

    /// Random steps on random streams.
    pub fn random(seed: u64) -> Program {
        let mut program = Program::default();
        for to in 0..BUFFERS {
            let seed = to as u64;
            program.put(to % STREAMS, StreamTask::Upload { to, seed });
        }
        for at in 0..STEPS {
            let words = philox(key(seed, Purpose::SYNTHETIC, 0), [at, 0, 0, 0]);
            let [kind, stream, a, b] = words.map(|word| (word >> 8) as usize);
            let to = (a / BUFFERS) % BUFFERS;
            let (a, b) = (a % BUFFERS, b % BUFFERS);
            let step = match kind % 8 {
                0 => StreamTask::Upload {
                    to,
                    seed: u64::from(at),
                },
                1..=3 if a != to => StreamTask::Copy { from: a, to },
                _ if a != to && b != to => StreamTask::Add { a, b, to },
                _ => continue,
            };
            program.put(stream % STREAMS, step);
        }
        program
    }

    /// Appends a step that waits for what it conflicts with, unless another wait implies it.
    fn put(&mut self, stream: usize, step: StreamTask) {
        let mut waits = Vec::new();
        for at in (0..self.steps.len()).rev() {
            let before = &self.steps[at];
            let conflicts = before.stream != stream && before.step.conflicts(step);
            if conflicts && !self.is_before(at, stream, &waits) {
                waits.push(at);
            }
        }
        self.steps.push(Placed {
            stream,
            step,
            waits,
        });
    }

    /// Whether step `at` is done before a new step of `stream` that waits for `waits`.
    fn is_before(&self, at: usize, stream: usize, waits: &[usize]) -> bool {
        let mut of_stream = (0..self.steps.len()).filter(|&one| self.steps[one].stream == stream);
        let mut open: Vec<usize> = of_stream
            .next_back()
            .into_iter()
            .chain(waits.iter().copied())
            .collect();
        let mut seen = vec![false; self.steps.len()];
        while let Some(one) = open.pop() {
            if one == at {
                return true;
            }
            if std::mem::replace(&mut seen[one], true) {
                continue;
            }
            let placed = &self.steps[one];
            let same = (0..one).rfind(|&earlier| self.steps[earlier].stream == placed.stream);
            open.extend(placed.waits.iter().copied().chain(same));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each step those that are done before it, by its stream and its waits.
    fn before(program: &Program) -> Vec<Vec<bool>> {
        let steps = &program.steps;
        let mut done: Vec<Vec<bool>> = Vec::new();
        for (at, placed) in steps.iter().enumerate() {
            let same = (0..at).rfind(|&earlier| steps[earlier].stream == placed.stream);
            let mut own = vec![false; steps.len()];
            for one in placed.waits.iter().copied().chain(same) {
                own[one] = true;
                for (earlier, is_done) in done[one].iter().enumerate() {
                    own[earlier] |= is_done;
                }
            }
            done.push(own);
        }
        done
    }

    #[test]
    fn steps_whose_order_matters_are_ordered_and_many_others_are_not() {
        for program in [Program::relay()]
            .into_iter()
            .chain((0..4).map(Program::random))
        {
            let (steps, done) = (&program.steps, before(&program));
            let mut free = 0;
            for at in 0..steps.len() {
                for earlier in 0..at {
                    let matters = steps[at].step.conflicts(steps[earlier].step);
                    assert!(!matters || done[at][earlier], "{earlier} before {at}");
                    free += usize::from(!done[at][earlier]);
                }
            }
            assert!(free > 0, "no pair may run in either order");
            let waits: usize = steps.iter().map(|placed| placed.waits.len()).sum();
            assert!(waits > 10, "{waits} waits");
        }
    }
}
