//! The largest sizes of a run's steps, measured or bounded.

use rayon::prelude::*;

use super::BatchSchedule;
use crate::error::DataError;
use crate::pack::BatchLimit;

/// Most sequences of a run, repeated ones included, whose micro-batches are all measured (some
/// seconds). The sizes of a longer run are bounded instead.
const MEASURED: u64 = 1 << 27;

/// The largest sizes over all steps of a run; the memory plan is made for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Tokens of the largest micro-batch.
    pub max_tokens: usize,
    /// Sequences of the micro-batch with the most sequences.
    pub max_sequences: usize,
    /// Tokens of the longest sequence.
    pub max_sequence_tokens: usize,
    /// Micro-batches of the step with the most micro-batches.
    pub max_micro_batches: usize,
}

impl Extent {
    /// The larger of each size.
    pub fn join(self, other: Extent) -> Extent {
        Extent {
            max_tokens: self.max_tokens.max(other.max_tokens),
            max_sequences: self.max_sequences.max(other.max_sequences),
            max_sequence_tokens: self.max_sequence_tokens.max(other.max_sequence_tokens),
            max_micro_batches: self.max_micro_batches.max(other.max_micro_batches),
        }
    }
}

impl BatchSchedule {
    /// The largest sizes over the steps of the run: a maximum, so the number of threads does not
    /// matter.
    pub(super) fn measure(&self) -> Result<Extent, DataError> {
        let rows = self.dataset.num_sequences();
        let epochs = match self.total_steps.div_ceil(self.steps_per_epoch) {
            epochs if self.order.repeats() => epochs.min(1),
            epochs => epochs,
        };
        let extent = if epochs.saturating_mul(rows as u64) > MEASURED {
            self.bound()
        } else {
            // The first epoch is measured last, so that its order is cached when the run begins.
            (0..epochs)
                .rev()
                .map(|epoch| {
                    let order = self.recent_order(epoch);
                    let steps_before = epoch * self.steps_per_epoch;
                    let steps = (self.total_steps - steps_before).min(self.steps_per_epoch);
                    (0..steps)
                        .into_par_iter()
                        .map(|step| self.measure_step(self.rows_of(step, &order)))
                        .reduce(Extent::default, Extent::join)
                })
                .fold(Extent::default(), Extent::join)
        };
        if extent.max_tokens > i32::MAX as usize {
            let found = extent.max_tokens as u64;
            return Err(DataError::MicroBatch { found });
        }
        Ok(extent)
    }

    /// Sizes that no step of any order exceeds.
    pub(super) fn bound(&self) -> Extent {
        let rows = self.dataset.num_sequences();
        let lengths = (0..rows).map(|index| self.dataset.length(index) as u32);
        let mut lengths: Vec<u32> = lengths.collect();
        lengths.sort_unstable();
        let sum = |lengths: &[u32]| lengths.iter().map(|&length| length as usize).sum();
        let step_sequences = self.batch_size.min(rows);
        let (max_tokens, max_sequences, max_micro_batches) = match self.packing {
            BatchLimit::Sequences(count) => {
                let count = count.min(step_sequences);
                let longest = sum(&lengths[rows - count..]);
                (longest, count, step_sequences.div_ceil(count))
            }
            BatchLimit::Tokens(capacity) => {
                let shortest = lengths.iter().scan(0, |sum, &length| {
                    *sum += length as usize;
                    Some(*sum)
                });
                let fitting = shortest.take_while(|sum| *sum <= capacity).count();
                let tokens = sum(&lengths[rows - step_sequences..]);
                (
                    capacity.min(tokens),
                    fitting.min(step_sequences),
                    step_sequences,
                )
            }
        };
        Extent {
            max_tokens,
            max_sequences,
            max_sequence_tokens: lengths[rows - 1] as usize,
            max_micro_batches,
        }
    }

    fn measure_step(&self, rows: &[u32]) -> Extent {
        let length = |position: &u32| self.dataset.length(rows[*position as usize] as usize);
        let groups = self.groups(rows);
        let sizes = groups.iter().map(|group| Extent {
            max_tokens: group.iter().map(length).sum(),
            max_sequences: group.len(),
            max_sequence_tokens: group.iter().map(length).max().unwrap_or(0),
            max_micro_batches: groups.len(),
        });
        sizes.fold(Extent::default(), Extent::join)
    }
}
