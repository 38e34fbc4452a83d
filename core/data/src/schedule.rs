//! A dataset and the run's end -> the micro-batches of any step, computed from its number alone.
//!
//! No state is carried from step to step, so resuming at a step needs only its number. A step never
//! crosses an epoch; the last step of an epoch holds the sequences that are left (Hugging Face's
//! `dataloader_drop_last = false`).

mod extent;

use std::sync::{Arc, Mutex, PoisonError};

use super::dataset::Dataset;
use super::error::{DataError, RowFault};
use super::options::DataOptions;
use super::order::Order;
use super::pack::{BatchLimit, MicroBatch};

pub use extent::Extent;

/// When a run ends: after its epochs or its steps, whichever is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// Times that every sequence is seen.
    pub epochs: u64,
    /// Optimizer steps at most.
    pub max_steps: Option<u64>,
}

/// All that one optimizer step trains on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepBatch {
    /// The epoch it belongs to, from 0.
    pub epoch: u64,
    /// Its micro-batches in order; never empty, and none of them is.
    pub micro_batches: Vec<MicroBatch>,
    /// Trained tokens of all micro-batches: the loss's divisor.
    pub trained_tokens: usize,
}

impl StepBatch {
    /// Tokens of all micro-batches, trained or not.
    pub fn tokens(&self) -> usize {
        self.micro_batches.iter().map(|m| m.tokens.len()).sum()
    }
}

/// The steps of a run.
pub struct BatchSchedule {
    dataset: Dataset,
    order: Order,
    batch_size: usize,
    packing: BatchLimit,
    steps_per_epoch: u64,
    total_steps: u64,
    extent: Extent,
    /// The order of the last epoch that was used.
    recent: Mutex<Option<(u64, Arc<Vec<u32>>)>>,
}

impl BatchSchedule {
    /// The steps of a training run.
    ///
    /// # Errors
    /// [`DataError::Option`] or [`DataError::UnknownField`] for unusable options.
    /// [`RowFault::PackTokens`] for a sequence that no micro-batch holds. [`DataError::MicroBatch`]
    /// for a micro-batch too large to count.
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
        BatchSchedule::new(dataset, options, order, horizon)
    }

    /// The steps of one evaluation: every sequence once, in file order.
    ///
    /// # Errors
    /// As [`BatchSchedule::training`].
    pub fn evaluation(dataset: &Dataset, options: &DataOptions) -> Result<Self, DataError> {
        let horizon = Horizon {
            epochs: 1,
            max_steps: None,
        };
        BatchSchedule::new(dataset, options, Order::File, horizon)
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
                return Err(RowFault::PackTokens {
                    expected,
                    found: dataset.length(index),
                }
                .at(dataset.origin(index)?.place));
            }
        }
        let steps_per_epoch = rows.div_ceil(options.batch_size) as u64;
        let all_steps = steps_per_epoch.saturating_mul(horizon.epochs);
        let mut schedule = BatchSchedule {
            dataset: dataset.clone(),
            order,
            batch_size: options.batch_size,
            packing: match options.pack_tokens {
                Some(capacity) => BatchLimit::Tokens(capacity),
                None => BatchLimit::Sequences(options.micro_batch),
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
    /// [`DataError::Cache`] for a temporary file that cannot be read.
    ///
    /// # Panics
    /// Where `index` is not below [`BatchSchedule::total_steps`].
    pub fn step(&self, index: u64) -> Result<StepBatch, DataError> {
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
        Ok(StepBatch {
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
                // Freed before the next one is made, so there is never more than one.
                *recent = None;
                let rows = self.dataset.num_sequences();
                let order = Arc::new(self.order.of_epoch(epoch, rows));
                *recent = Some((epoch, Arc::clone(&order)));
                order
            }
        }
    }

    /// The rows of a step of the epoch with this order.
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
}

#[cfg(test)]
mod tests;
