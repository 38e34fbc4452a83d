//! Rows, or a config without rows -> the largest micro-batch, and micro-batches per step.

use espalier_config::Config;
use espalier_data::{BatchSchedule, Extent};
use espalier_plan::plan::BatchLimits;

use super::rows::RunData;

/// The largest micro-batch under the config.
pub(super) fn limits_without_rows(config: &Config) -> BatchLimits {
    let data = &config.data;
    let full = data.micro_batch * data.max_seq_len;
    let max_tokens = data.pack_tokens.unwrap_or(full) as u64;
    let max_sequences = if data.pack_tokens.is_some() {
        data.batch_size
    } else {
        data.micro_batch
    };
    BatchLimits {
        max_tokens,
        max_sequences: max_sequences as u64,
    }
}

/// Configured micro-batches per step; 0 where they depend on the rows.
pub(super) fn micro_batches_without_rows(config: &Config) -> u64 {
    let data = &config.data;
    match data.pack_tokens {
        Some(_) => 0,
        None => data.batch_size.div_ceil(data.micro_batch.max(1)) as u64,
    }
}

/// The largest micro-batch of training and evaluation.
pub(super) fn limits(data: &RunData) -> BatchLimits {
    let eval = data
        .eval
        .as_ref()
        .map_or_else(Extent::default, BatchSchedule::extent);
    let extent = data.train.extent().join(eval);
    BatchLimits {
        max_tokens: extent.max_tokens.max(1) as u64,
        max_sequences: extent.max_sequences.max(1) as u64,
    }
}
