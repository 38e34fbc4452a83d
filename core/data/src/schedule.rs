//! A dataset and the run's end -> the micro-batches of any step, computed from its number alone.
//!
//! Nothing is carried from step to step, so resuming at a step needs no more than its number. A
//! step never crosses an epoch; the last step of an epoch holds the sequences that are left
//! (Hugging Face's `dataloader_drop_last = false`).

use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use super::dataset::Dataset;
use super::error::DataError;
use super::options::DataOptions;
use super::order::Order;
use super::pack::{MicroBatch, Packing};

/// Sequences of a run, repeated ones too, whose micro-batches are all measured (some seconds); the
/// sizes of a longer run are bounded instead.
const MEASURED: u64 = 1 << 27;

/// When a run ends: after its epochs or its steps, whichever is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// Times that every sequence is seen.
    pub epochs: u64,
    /// Optimizer steps at most.
    pub max_steps: Option<u64>,
}

/// The largest sizes over all steps of a run; the memory plan is made for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Tokens of the largest micro-batch.
    pub max_tokens: usize,
    /// Sequences of the micro-batch with most of them.
    pub max_sequences: usize,
    /// Tokens of the longest sequence.
    pub max_sequence_tokens: usize,
    /// Micro-batches of the step with most of them.
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

/// All that one optimizer step trains on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The epoch it belongs to, from 0.
    pub epoch: u64,
    /// Its micro-batches in order; never empty, and none of them is.
    pub micro_batches: Vec<MicroBatch>,
    /// Trained tokens of all micro-batches: the loss's divisor.
    pub trained_tokens: usize,
}

impl Step {
    /// Tokens of all micro-batches, trained or not.
    pub fn tokens(&self) -> usize {
        self.micro_batches.iter().map(|m| m.tokens.len()).sum()
    }
}

/// The steps of a run.
pub struct Schedule {
    dataset: Dataset,
    order: Order,
    batch_size: usize,
    packing: Packing,
    steps_per_epoch: u64,
    total_steps: u64,
    extent: Extent,
    /// The order of the epoch that was asked for last.
    recent: Mutex<Option<(u64, Arc<Vec<u32>>)>>,
}

impl Schedule {
    /// The steps of a training run.
    ///
    /// # Errors
    /// A sequence that no micro-batch holds, or a micro-batch too large to count.
    pub fn training(
        dataset: &Dataset,
        options: &DataOptions,
        seed: u64,
        horizon: Horizon,
    ) -> Result<Self, DataError> {
        let order = if options.shuffle {
            Order::Shuffled { seed }
        } else {
            Order::File
        };
        Schedule::new(dataset, options, order, horizon)
    }

    /// The steps of one evaluation: every sequence once, in file order.
    ///
    /// # Errors
    /// As [`Schedule::training`].
    pub fn evaluation(dataset: &Dataset, options: &DataOptions) -> Result<Self, DataError> {
        let horizon = Horizon {
            epochs: 1,
            max_steps: None,
        };
        Schedule::new(dataset, options, Order::File, horizon)
    }

    fn new(
        dataset: &Dataset,
        options: &DataOptions,
        order: Order,
        horizon: Horizon,
    ) -> Result<Self, DataError> {
        options.validate()?;
        let rows = dataset.num_sequences();
        if let Some(expected) = options.pack_tokens {
            let longest = (0..rows).find(|&index| dataset.length(index) > expected);
            if let Some(index) = longest {
                return Err(DataError::PackTokens {
                    place: dataset.origin(index)?.place,
                    expected,
                    found: dataset.length(index),
                });
            }
        }
        let steps_per_epoch = rows.div_ceil(options.batch_size) as u64;
        let all_steps = steps_per_epoch.saturating_mul(horizon.epochs);
        let mut schedule = Schedule {
            dataset: dataset.clone(),
            order,
            batch_size: options.batch_size,
            packing: match options.pack_tokens {
                Some(capacity) => Packing::Tokens(capacity),
                None => Packing::Sequences(options.micro_batch),
            },
            steps_per_epoch,
            total_steps: all_steps.min(horizon.max_steps.unwrap_or(u64::MAX)),
            extent: Extent::default(),
            recent: Mutex::new(None),
        };
        schedule.extent = schedule.measure()?;
        Ok(schedule)
    }

    /// Optimizer steps of the run.
    pub fn total_steps(&self) -> u64 {
        self.total_steps
    }

    /// Optimizer steps that see every sequence once; the last may be smaller.
    pub fn steps_per_epoch(&self) -> u64 {
        self.steps_per_epoch
    }

    /// The largest sizes over all steps of the run; zeros where it has no step. Exact up to 2^27
    /// sequences, a bound for longer runs.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The dataset that the steps are made of.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Step `index` of the run, from 0.
    ///
    /// # Errors
    /// A temporary file that cannot be read.
    ///
    /// # Panics
    /// Where `index` is not below [`Schedule::total_steps`].
    pub fn step(&self, index: u64) -> Result<Step, DataError> {
        assert!(
            index < self.total_steps,
            "step {index} of a run of {} steps",
            self.total_steps
        );
        let epoch = index / self.steps_per_epoch;
        let order = self.recent_order(epoch);
        let rows = self.rows_of(index % self.steps_per_epoch, &order);
        let micro_batches: Vec<MicroBatch> = self
            .groups(rows)
            .iter()
            .map(|group| {
                let mut micro_batch = MicroBatch::new();
                for &position in group {
                    let row = rows[position as usize] as usize;
                    micro_batch.push(position, &self.dataset.sequence(row)?);
                }
                Ok(micro_batch)
            })
            .collect::<Result<_, DataError>>()?;
        Ok(Step {
            epoch,
            trained_tokens: micro_batches.iter().map(|m| m.num_trained).sum(),
            micro_batches,
        })
    }

    fn recent_order(&self, epoch: u64) -> Arc<Vec<u32>> {
        let epoch = if self.order.repeats() { 0 } else { epoch };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        match &*recent {
            Some((held, order)) if *held == epoch => Arc::clone(order),
            _ => {
                // Before the next one is made: there is never more than one.
                *recent = None;
                let rows = self.dataset.num_sequences();
                let order = Arc::new(self.order.of_epoch(epoch, rows));
                *recent = Some((epoch, Arc::clone(&order)));
                order
            }
        }
    }

    /// The rows of a step of the epoch whose order this is.
    fn rows_of<'a>(&self, step_of_epoch: u64, order: &'a [u32]) -> &'a [u32] {
        let start = step_of_epoch as usize * self.batch_size;
        &order[start..(start + self.batch_size).min(order.len())]
    }

    fn groups(&self, rows: &[u32]) -> Vec<Vec<u32>> {
        let lengths: Vec<usize> = rows
            .iter()
            .map(|&row| self.dataset.length(row as usize))
            .collect();
        self.packing.groups(&lengths)
    }

    /// The largest sizes over the steps of the run: a maximum, so the number of threads does not
    /// matter.
    fn measure(&self) -> Result<Extent, DataError> {
        let rows = self.dataset.num_sequences();
        let epochs = match self.total_steps.div_ceil(self.steps_per_epoch) {
            epochs if self.order.repeats() => epochs.min(1),
            epochs => epochs,
        };
        let extent = if epochs.saturating_mul(rows as u64) > MEASURED {
            self.bound()
        } else {
            // The first epoch comes last: its order stays for the run to begin with.
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
    fn bound(&self) -> Extent {
        let rows = self.dataset.num_sequences();
        let lengths = (0..rows).map(|index| self.dataset.length(index) as u32);
        let mut lengths: Vec<u32> = lengths.collect();
        lengths.sort_unstable();
        let sum = |lengths: &[u32]| lengths.iter().map(|&length| length as usize).sum();
        let step_sequences = self.batch_size.min(rows);
        let (max_tokens, max_sequences, max_micro_batches) = match self.packing {
            Packing::Sequences(count) => {
                let count = count.min(step_sequences);
                let longest = sum(&lengths[rows - count..]);
                (longest, count, step_sequences.div_ceil(count))
            }
            Packing::Tokens(capacity) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequence `i` is `[i, i, ..]`, so a token tells its row.
    fn dataset(lengths: &[usize]) -> Dataset {
        let rows: Vec<_> = lengths
            .iter()
            .enumerate()
            .map(|(row, &length)| (vec![row as i32; length], None))
            .collect();
        Dataset::of_rows(&rows)
    }

    fn options(batch_size: usize, micro_batch: usize, pack_tokens: Option<usize>) -> DataOptions {
        DataOptions {
            batch_size,
            micro_batch,
            pack_tokens,
            shuffle: false,
            ..DataOptions::default()
        }
    }

    const ONCE: Horizon = Horizon {
        epochs: 1,
        max_steps: None,
    };

    /// The rows of a step in the step's own order, whatever the packing.
    fn rows(step: &Step) -> Vec<i32> {
        let mut rows: Vec<(i32, i32)> = Vec::new();
        for m in &step.micro_batches {
            for (s, &position) in m.sequences.iter().enumerate() {
                rows.push((position, m.tokens[m.cu_seqlens[s] as usize]));
            }
        }
        rows.sort_unstable();
        assert!(
            rows.iter()
                .map(|(position, _)| *position)
                .eq(0..rows.len() as i32)
        );
        rows.into_iter().map(|(_, row)| row).collect()
    }

    #[test]
    fn a_micro_batch_holds_sequences_end_to_end() {
        let data = Dataset::of_rows(&[
            (vec![1, 2, 3], None),
            (vec![4, 5], Some(vec![4, 5])),
            (vec![6, 7, 8], Some(vec![6, -100, 8])),
        ]);
        let schedule = Schedule::training(&data, &options(3, 2, None), 1, ONCE).unwrap();
        let step = schedule.step(0).unwrap();
        assert_eq!(step.trained_tokens, 4);
        let first = MicroBatch {
            tokens: vec![1, 2, 3, 4, 5],
            positions: vec![0, 1, 2, 0, 1],
            cu_seqlens: vec![0, 3, 5],
            labels: vec![2, 3, -100, 5, -100],
            sequences: vec![0, 1],
            num_trained: 3,
        };
        let second = MicroBatch {
            tokens: vec![6, 7, 8],
            positions: vec![0, 1, 2],
            cu_seqlens: vec![0, 3],
            labels: vec![-100, 8, -100],
            sequences: vec![2],
            num_trained: 1,
        };
        assert_eq!(step.micro_batches, [first, second]);
        let extent = schedule.extent();
        assert_eq!((extent.max_tokens, extent.max_sequences), (5, 2));
        assert_eq!(
            (extent.max_sequence_tokens, extent.max_micro_batches),
            (3, 2)
        );
    }

    #[test]
    fn an_epoch_ends_with_a_smaller_step_and_the_next_begins_anew() {
        let data = dataset(&[2; 5]);
        let twice = Horizon {
            epochs: 2,
            max_steps: None,
        };
        let schedule = Schedule::training(&data, &options(2, 1, None), 1, twice).unwrap();
        assert_eq!((schedule.steps_per_epoch(), schedule.total_steps()), (3, 6));
        let seen: Vec<_> = (0..6).map(|k| rows(&schedule.step(k).unwrap())).collect();
        assert_eq!(seen[..3], [vec![0, 1], vec![2, 3], vec![4]]);
        assert_eq!(seen[..3], seen[3..]);
        assert_eq!(
            (
                schedule.step(2).unwrap().epoch,
                schedule.step(3).unwrap().epoch
            ),
            (0, 1)
        );
    }

    #[test]
    fn the_earlier_end_counts() {
        let data = dataset(&[2; 5]);
        let total = |epochs, max_steps| {
            let horizon = Horizon { epochs, max_steps };
            let schedule = Schedule::training(&data, &options(2, 1, None), 1, horizon).unwrap();
            (schedule.total_steps(), schedule.extent())
        };
        assert_eq!(total(2, Some(4)).0, 4);
        assert_eq!(total(2, Some(100)).0, 6);
        assert_eq!(total(u64::MAX, Some(7)).0, 7);
        assert_eq!(total(1, Some(0)), (0, Extent::default()));
        assert_eq!(total(0, None), (0, Extent::default()));
    }

    #[test]
    fn packing_changes_neither_the_sequences_of_a_step_nor_their_numbers() {
        let data = dataset(&[3, 9, 4, 4, 2, 8, 5, 5, 6, 7, 2]);
        let shuffled = |micro_batch, pack_tokens| {
            let mut options = options(4, micro_batch, pack_tokens);
            options.shuffle = true;
            let horizon = Horizon {
                epochs: 3,
                max_steps: None,
            };
            Schedule::training(&data, &options, 7, horizon).unwrap()
        };
        let (one, four, packed) = (shuffled(1, None), shuffled(4, None), shuffled(1, Some(12)));
        for k in 0..one.total_steps() {
            let expected = rows(&one.step(k).unwrap());
            assert_eq!(rows(&four.step(k).unwrap()), expected);
            assert_eq!(rows(&packed.step(k).unwrap()), expected);
            assert_eq!(
                four.step(k).unwrap().trained_tokens,
                packed.step(k).unwrap().trained_tokens
            );
        }
    }

    #[test]
    fn a_step_depends_on_its_number_alone() {
        let mut options = options(3, 2, None);
        options.shuffle = true;
        let horizon = Horizon {
            epochs: 4,
            max_steps: None,
        };
        let data = dataset(&[2, 5, 3, 6, 4, 7, 3]);
        let new = || Schedule::training(&data, &options, 42, horizon).unwrap();
        let schedule = new();
        let forward: Vec<Step> = (0..12).map(|k| schedule.step(k).unwrap()).collect();
        for k in (0..12).rev() {
            assert_eq!(schedule.step(k).unwrap(), forward[k as usize]);
            assert_eq!(new().step(k).unwrap(), forward[k as usize]);
        }
        for epoch in forward.chunks(3) {
            let mut seen: Vec<i32> = epoch.iter().flat_map(rows).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..7));
        }
        assert_ne!(rows(&forward[0]), rows(&forward[3]));
    }

    #[test]
    fn the_extent_is_exact_and_below_the_bound() {
        let lengths: Vec<usize> = (0..53).map(|i| 2 + (i * 29) % 31).collect();
        let data = dataset(&lengths);
        for (micro_batch, pack_tokens) in [(1, None), (3, None), (100, None), (1, Some(40))] {
            for (shuffle, max_steps) in [(true, None), (true, Some(9)), (false, Some(2))] {
                let mut options = options(7, micro_batch, pack_tokens);
                options.shuffle = shuffle;
                let horizon = Horizon {
                    epochs: 3,
                    max_steps,
                };
                let schedule = Schedule::training(&data, &options, 5, horizon).unwrap();
                let mut seen = Extent::default();
                for k in 0..schedule.total_steps() {
                    let step = schedule.step(k).unwrap();
                    for m in &step.micro_batches {
                        let longest = m
                            .cu_seqlens
                            .windows(2)
                            .map(|w| (w[1] - w[0]) as usize)
                            .max();
                        seen = seen.join(Extent {
                            max_tokens: m.num_tokens(),
                            max_sequences: m.num_sequences(),
                            max_sequence_tokens: longest.unwrap(),
                            max_micro_batches: step.micro_batches.len(),
                        });
                    }
                }
                assert_eq!(schedule.extent(), seen);
                assert_eq!(seen.join(schedule.bound()), schedule.bound());
            }
        }
    }

    #[test]
    fn a_sequence_that_no_micro_batch_holds_is_named() {
        let refused = Schedule::evaluation(&dataset(&[3, 9, 4]), &options(2, 1, Some(8)));
        let message = refused.err().expect("refused").to_string();
        assert!(
            message.starts_with("rows.jsonl:2: the row has 9 tokens, data.pack_tokens holds 8"),
            "{message}"
        );
    }
}
