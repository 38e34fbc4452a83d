//! Training rows or a config -> the work of a step and of its busiest rank.

use espalier_data::{BatchSchedule, DataOptions};
use serde::Serialize;

use super::flops::{Flops, causal_pairs, pairs_of};
use crate::Error;

/// The work of a step, and of the rank with the most work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Work {
    /// Micro-batches of the step, on all ranks.
    pub step_micro_batches: u64,
    /// Micro-batches of that rank.
    pub micro_batches: u64,
    /// Tokens of each of its micro-batches, on average.
    pub tokens: f64,
    /// Pairs per micro-batch of a token and one that it attends to, on average.
    pub pairs: f64,
    /// Tokens of the step, on all ranks.
    pub step_tokens: u64,
}

impl Work {
    /// The first step of `rows` on `ranks` ranks.
    ///
    /// # Errors
    /// [`Error::Data`] for rows that can no longer be read.
    pub fn of_rows(rows: &BatchSchedule, ranks: u64) -> Result<Self, Error> {
        if rows.total_steps() == 0 {
            return Ok(Work::default());
        }
        let step = rows.step(0)?.micro_batches;
        let tokens = step.iter().map(|micro| micro.tokens.len() as u64).sum();
        let pairs = step.iter().map(pairs_of).sum();
        Ok(Work::new(step.len() as u64, [tokens, pairs], ranks))
    }

    /// A step in which every sequence is as long as `data` allows.
    pub fn of_config(data: &DataOptions, ranks: u64) -> Self {
        let [sequences, length] = [data.batch_size, data.max_seq_len].map(|n| n as u64);
        let tokens = sequences * length;
        let rounds = match data.pack_tokens {
            Some(most) => {
                let at_once = (most as u64 / length).max(1);
                sequences.div_ceil(at_once)
            }
            None => sequences.div_ceil(data.micro_batch as u64),
        };
        Work::new(rounds, [tokens, sequences * causal_pairs(length)], ranks)
    }

    /// Operations of the step on all ranks, by the rates in `flops`.
    pub fn flops(&self, flops: Flops) -> u64 {
        let each = flops.times(self.tokens, self.pairs);
        (each * self.step_micro_batches as f64) as u64
    }

    fn new(rounds: u64, [tokens, pairs]: [u64; 2], ranks: u64) -> Self {
        let each = |of_step: u64| of_step as f64 / rounds.max(1) as f64;
        Work {
            step_micro_batches: rounds,
            micro_batches: rounds.div_ceil(ranks),
            tokens: each(tokens),
            pairs: each(pairs),
            step_tokens: tokens,
        }
    }
}
