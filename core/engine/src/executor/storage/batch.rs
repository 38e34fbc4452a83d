//! The buffer of a sweep's micro-batches: their tensors, and the numbers that are read back.

use espalier_compile::arena::aligned;
use espalier_data::MicroBatch;
use espalier_interface::graph::batch::LengthPositions;
use espalier_interface::{BufferRange, Device, Result, Stream};
use espalier_plan::plan::Labelled;
use espalier_plan::storage_layout::batch_bytes;

/// The locations of the batch's tensors, and of the results that a step reads back.
pub(super) struct BatchRanges {
    /// Those of the first micro-batch, in the order of [`espalier_compile::program::BATCH`] and
    /// then of `by_length`.
    tensors: Vec<BufferRange>,
    by_length: Vec<LengthPositions>,
    /// Bytes of a micro-batch's tensors; those of the next one follow.
    each: u64,
    /// One number of 8 bytes.
    result: BufferRange,
    /// One number a unit, each in 64 bytes of its own.
    unit_results: BufferRange,
}

impl BatchRanges {
    /// The ranges in `buffer` for `sweep` micro-batches of at most `max_tokens` tokens of
    /// `max_sequences` sequences, which have the tensors `by_length`, too.
    pub(super) fn of(
        buffer: BufferRange,
        ([max_tokens, max_sequences], by_length): ([u64; 2], &[LengthPositions]),
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
        let behind = 4 * each + aligned(boundaries);
        let more =
            (0..by_length.len() as u64).map(|tensor| range(behind + tensor * each, 4 * max_tokens));
        let of_one = batch_bytes([max_tokens, max_sequences], by_length.len());
        let result = range(sweep.max(1) * of_one, 8);
        BatchRanges {
            tensors: per_token.chain([cu_seqlens]).chain(more).collect(),
            by_length: by_length.to_vec(),
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

    /// Uploads a micro-batch's tensors to its slot at once, in the order of `tensors`; of labels
    /// only those of `labelled`, together.
    pub(super) fn upload(
        &self,
        device: &dyn Device,
        (slot, micro): (u64, &MicroBatch),
        labelled: Option<&Labelled>,
    ) -> Result<()> {
        let labels = labelled.map(|some| some.together(&micro.labels));
        let sequences = sequence_of_each_token(micro);
        let by_length = self.by_length.iter();
        let by_length: Vec<_> = by_length.map(|&which| positions_of(micro, which)).collect();
        let tensors = [
            &micro.tokens,
            &micro.positions,
            labels.as_ref().unwrap_or(&micro.labels),
            &sequences,
            &micro.cu_seqlens,
        ];
        let tensors = tensors.into_iter().chain(&by_length);
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

/// The positions of the sequences of some lengths, and 0 for the other tokens, `[T]`.
fn positions_of(micro: &MicroBatch, which: LengthPositions) -> Vec<i32> {
    let each = micro.whole_lengths().zip(micro.cu_seqlens.windows(2));
    let mut positions = Vec::with_capacity(micro.positions.len());
    for (length, ends) in each {
        let tokens = ends[0] as usize..ends[1] as usize;
        if which.has(length) {
            positions.extend_from_slice(&micro.positions[tokens]);
        } else {
            positions.resize(tokens.end, 0);
        }
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_has_positions_by_the_length_of_the_whole_of_it() {
        let whole = MicroBatch {
            positions: vec![0, 1, 2, 0, 1],
            cu_seqlens: vec![0, 3, 3, 5],
            sequences: vec![0, 1, 2],
            ..MicroBatch::default()
        };
        let of = |micro: &MicroBatch| {
            [LengthPositions::UpTo(2), LengthPositions::Beyond(2)]
                .map(|which| positions_of(micro, which))
        };
        assert_eq!(of(&whole), [vec![0, 0, 0, 0, 1], vec![0, 1, 2, 0, 0]]);
        // The last tokens of a sequence of 3, and the first of one of 2.
        let parts = MicroBatch {
            positions: vec![2, 0],
            cu_seqlens: vec![0, 1, 2],
            sequences: vec![4, 5],
            lengths: vec![3, 2],
            ..MicroBatch::default()
        };
        assert_eq!(of(&parts), [vec![0, 0], vec![2, 0]]);
    }

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
