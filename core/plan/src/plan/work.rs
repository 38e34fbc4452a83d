//! Training rows or a config -> the work of a step and of its busiest rank.

use espalier_compile::program::{Program, UnitProgram};
use espalier_data::{BatchSchedule, DataOptions, MicroBatch};
use serde::Serialize;

use super::Labelled;
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
    /// Those that the head works on, on average: it may leave tokens without a label out.
    pub head_tokens: f64,
    /// Pairs per micro-batch of a token and one that it attends to, on average.
    pub pairs: f64,
    /// Tokens of the step, on all ranks.
    pub step_tokens: u64,
}

impl Work {
    /// The first step of `rows` by `program` on `ranks` ranks.
    ///
    /// # Errors
    /// [`Error::Data`] for rows that can no longer be read.
    pub fn of_rows(rows: &BatchSchedule, program: &Program, ranks: u64) -> Result<Self, Error> {
        if rows.total_steps() == 0 {
            return Ok(Work::default());
        }
        let step = rows.step(0)?.micro_batches;
        let tokens: u64 = step.iter().map(|micro| micro.tokens.len() as u64).sum();
        let head = program.units.last();
        let head_tokens = match head.and_then(|head| head.labelled) {
            Some(_) => {
                let of_head = |micro: &MicroBatch| Labelled::count(&micro.labels) as u64;
                step.iter().map(of_head).sum()
            }
            None => tokens,
        };
        let pairs = step.iter().map(pairs_of).sum();
        let work = [tokens, head_tokens, pairs];
        Ok(Work::new(step.len() as u64, work, ranks))
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
        let work = [tokens, tokens, sequences * causal_pairs(length)];
        Work::new(rounds, work, ranks)
    }

    /// Tokens of the step that the head works on, on all ranks.
    pub fn step_head_tokens(&self) -> u64 {
        (self.head_tokens * self.step_micro_batches as f64).round() as u64
    }

    /// Operations for a micro-batch, by the rates in `flops`.
    pub fn micro_batch_flops(&self, flops: &Flops) -> f64 {
        let of_tokens = flops.per_token as f64 * self.tokens;
        let of_head = flops.per_head_token as f64 * self.head_tokens;
        of_tokens + of_head + flops.per_pair as f64 * self.pairs + flops.per_batch as f64
    }

    /// Operations of the step on all ranks, by the rates in `flops`.
    pub fn flops(&self, flops: Flops) -> u64 {
        (self.micro_batch_flops(&flops) * self.step_micro_batches as f64) as u64
    }

    /// Tokens of a micro-batch that a unit works on, on average.
    pub fn tokens_of(&self, unit: &UnitProgram) -> f64 {
        match unit.labelled {
            Some(_) => self.head_tokens,
            None => self.tokens,
        }
    }

    fn new(rounds: u64, [tokens, head_tokens, pairs]: [u64; 3], ranks: u64) -> Self {
        let each = |of_step: u64| of_step as f64 / rounds.max(1) as f64;
        Work {
            step_micro_batches: rounds,
            micro_batches: rounds.div_ceil(ranks),
            tokens: each(tokens),
            head_tokens: each(head_tokens),
            pairs: each(pairs),
            step_tokens: tokens,
        }
    }
}
