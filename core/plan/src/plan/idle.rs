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
    /// all rows, where it is known. None where every rank has a micro-batch.
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
mod tests {
    use super::*;

    fn idle(
        [batch_size, micro_batch]: [usize; 2],
        ranks: u64,
        rows: Option<u64>,
    ) -> Option<IdleRanks> {
        let data = DataOptions {
            batch_size,
            micro_batch,
            ..DataOptions::default()
        };
        let of_step = (batch_size as u64).min(rows.unwrap_or(u64::MAX));
        IdleRanks::of(&data, ranks, of_step.div_ceil(micro_batch as u64), rows)
    }

    /// Each proposed setting gives every rank a micro-batch.
    #[test]
    fn each_setting_that_is_named_is_enough() {
        for ranks in 1..9 {
            for batch in 1..20 {
                for micro in 1..20 {
                    for rows in [None, Some(3), Some(30)] {
                        let Some(found) = idle([batch, micro], ranks, rows) else {
                            continue;
                        };
                        assert!(!found.set.is_empty(), "{found}");
                        for setting in &found.set {
                            let (key, value) = setting
                                .split_once(" = ")
                                .or_else(|| setting.split_once(' '))
                                .expect("a key and its value");
                            let value: usize = value.parse().expect("a number");
                            let after = match key {
                                "data.batch_size" => idle([value, micro], ranks, rows),
                                "data.micro_batch" => idle([batch, value], ranks, rows),
                                "--ranks" => idle([batch, micro], value as u64, rows),
                                other => panic!("{other}"),
                            };
                            assert_eq!(after, None, "{found}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn it_is_said_with_numbers() {
        let found = idle([4, 4], 2, None).expect("one of two");
        assert_eq!(
            found.to_string(),
            "1 of 2 ranks has nothing to do: a step has 1 micro-batch of 4 rows in all; set \
             data.batch_size = 8 or data.micro_batch = 2"
        );
        assert_eq!(idle([8, 1], 2, None), None);
    }
}
