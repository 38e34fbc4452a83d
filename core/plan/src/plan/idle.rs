//! Micro-batches and ranks of a step -> the ranks without work, and settings that give them work.

use std::fmt;

use espalier_data::DataOptions;
use serde::{Deserialize, Serialize};

/// Ranks that get no micro-batch in any step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleRanks {
    /// Number of idle ranks.
    pub idle: u64,
    /// Number of all ranks.
    pub ranks: u64,
    /// Most micro-batches of a step.
    pub micro_batches: u64,
    /// Most rows of a step.
    pub rows: u64,
    /// Settings, each of which alone gives every rank work.
    pub set: Vec<String>,
}

impl IdleRanks {
    /// The idle ranks of `ranks`, where a step has at most `micro_batches`. `rows` is the number of
    /// all rows, if known. `None` where every rank has a micro-batch.
    pub fn of(
        data: &DataOptions,
        ranks: u64,
        micro_batches: u64,
        rows: Option<u64>,
    ) -> Option<Self> {
        if micro_batches == 0 || micro_batches >= ranks {
            return None;
        }
        let (all, batch) = (rows.unwrap_or(u64::MAX), data.batch_size as u64);
        let of_step = batch.min(all);
        let mut set = Vec::new();
        let enough = match data.pack_tokens {
            // Raise the rows by the ratio of ranks to micro-batches.
            Some(_) => batch.saturating_mul(ranks.div_ceil(micro_batches)),
            None => (data.micro_batch as u64).saturating_mul(ranks),
        };
        if enough <= all {
            set.push(format!("data.batch_size = {enough}"));
        }
        if data.pack_tokens.is_none() && of_step >= ranks {
            set.push(format!("data.micro_batch = {}", of_step / ranks));
        }
        if set.is_empty() {
            set.push(format!("--ranks {micro_batches}"));
        }
        Some(IdleRanks {
            idle: ranks - micro_batches,
            ranks,
            micro_batches,
            rows: of_step,
            set,
        })
    }
}

impl fmt::Display for IdleRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64, name: &str| match count {
            1 => format!("1 {name}"),
            _ => format!("{count} {name}s"),
        };
        let has = if self.idle == 1 { "has" } else { "have" };
        write!(
            f,
            "{} of {} ranks {has} nothing to do: a step has {} of {} in all; set {}",
            self.idle,
            self.ranks,
            plural(self.micro_batches, "micro-batch").replace("batchs", "batches"),
            plural(self.rows, "row"),
            self.set.join(" or "),
        )
    }
}

#[cfg(test)]
mod tests;
