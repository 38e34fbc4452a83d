//! The buffer of a sweep's micro-batches: their tensors, and the numbers that are read back.

use espalier_compile::arena::aligned;
use espalier_data::MicroBatch;
use espalier_interface::{BufferRange, Device, Result, Stream};
use espalier_plan::storage_layout::batch_bytes;

/// The locations of the batch's tensors, and of the results that a step reads back.
pub(super) struct BatchRanges {
    /// Those of the first micro-batch, in the order of [`espalier_compile::program::BATCH`].
    tensors: Vec<BufferRange>,
    /// Bytes of a micro-batch's tensors; those of the next one follow.
    each: u64,
    /// One number of 8 bytes.
    result: BufferRange,
    /// One number a unit, each in 64 bytes of its own.
    unit_results: BufferRange,
}

impl BatchRanges {
    /// The ranges in `buffer` for `sweep` micro-batches of at most `max_tokens` tokens of
    /// `max_sequences` sequences.
    pub(super) fn of(
        buffer: BufferRange,
        [max_tokens, max_sequences]: [u64; 2],
        units: usize,
        sweep: u64,
    ) -> Self {
        let range = |offset, bytes| BufferRange {
            offset,
            bytes,
            ..buffer
        };
        let each = aligned(4 * max_tokens);
        let boundaries = 4 * (max_sequences + 1);
        let per_token = (0..4).map(|tensor| range(tensor * each, 4 * max_tokens));
        let cu_seqlens = range(4 * each, boundaries);
        let of_one = batch_bytes([max_tokens, max_sequences]);
        let result = range(sweep.max(1) * of_one, 8);
        BatchRanges {
            tensors: per_token.chain([cu_seqlens]).collect(),
            each: of_one,
            result,
            unit_results: range(result.offset + aligned(8), aligned(8) * units as u64),
        }
    }

    /// `bytes` bytes of a tensor of the micro-batch in `slot`, from byte `offset` on.
    pub(super) fn tensor(&self, slot: u64, tensor: usize, offset: u64, bytes: u64) -> BufferRange {
        let whole = self.tensors[tensor];
        BufferRange {
            offset: whole.offset + slot * self.each + offset,
            bytes,
            ..whole
        }
    }

    /// Where one number of a launch is read back from.
    pub(super) fn result(&self) -> BufferRange {
        self.result
    }

    /// Where a number of a unit is read back from.
    pub(super) fn unit_result(&self, unit: usize) -> BufferRange {
        BufferRange {
            offset: self.unit_results.offset + unit as u64 * aligned(8),
            bytes: 8,
            ..self.unit_results
        }
    }

    /// Where the numbers of all units are read back from.
    pub(super) fn unit_results(&self) -> BufferRange {
        self.unit_results
    }

    /// Uploads a micro-batch's tensors to `slot` at once, in the order of
    /// [`espalier_compile::program::BATCH`].
    pub(super) fn upload(&self, device: &dyn Device, slot: u64, micro: &MicroBatch) -> Result<()> {
        let sequences = sequence_of_each_token(micro);
        let tensors = [
            &micro.tokens,
            &micro.positions,
            &micro.labels,
            &sequences,
            &micro.cu_seqlens,
        ];
        let first = self.tensors[0].offset;
        let mut bytes = Vec::new();
        for (range, values) in self.tensors.iter().zip(tensors) {
            bytes.resize((range.offset - first) as usize, 0);
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        let range = self.tensor(slot, 0, 0, bytes.len() as u64);
        device.upload(&bytes, range, Stream(0))
    }
}

/// The sequence number of each token, `[T]`.
fn sequence_of_each_token(micro: &MicroBatch) -> Vec<i32> {
    let bounds = micro.cu_seqlens.windows(2);
    let each = micro.sequences.iter().zip(bounds);
    each.flat_map(|(&number, ends)| std::iter::repeat_n(number, (ends[1] - ends[0]) as usize))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_carries_the_number_of_its_sequence() {
        let micro = MicroBatch {
            cu_seqlens: vec![0, 3, 3, 5],
            sequences: vec![7, 8, 2],
            ..MicroBatch::default()
        };
        assert_eq!(sequence_of_each_token(&micro), [7, 7, 7, 2, 2]);
    }
}
