//! Every byte of a run on its device: frozen params by unit, trainable ones in one run, arena, batch and workspace.

use espalier_interface::{Buffer, BufferRange, Device, MemoryKind, Result, Stream};

use crate::arena::aligned;
use crate::data::MicroBatch;
use crate::params::{Dtypes, Param};

/// Elements to which a trainable param's place is rounded up: 64 bytes or more in every dtype.
const ELEMENT_STEP: u64 = 64;

/// A run's buffers and where each param lies in them.
pub struct Storage {
    buffers: Vec<(Buffer, u64)>,
    /// Ranges of each param: one if dense, one a segment if packed.
    params: Vec<Vec<BufferRange>>,
    /// Gradient of each param; empty for a frozen one.
    gradients: Vec<Option<BufferRange>>,
    /// For each unit, its trainable params' gradient, values, first and second moment.
    optimizer: Vec<[BufferRange; 4]>,
    all_gradients: BufferRange,
    arena: BufferRange,
    batch: Vec<BufferRange>,
    workspace: BufferRange,
    result: BufferRange,
}

/// Sizes of a run's buffers in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Frozen params.
    pub frozen: u64,
    /// Trainable params.
    pub trainable: u64,
    /// Gradients.
    pub gradients: u64,
    /// First and second moments.
    pub optimizer: u64,
    /// A micro-batch's tensors.
    pub batch: u64,
}

impl Storage {
    /// The sizes of the buffers that [`Storage::new`] allocates beside arena and workspace.
    pub fn sizes(params: &[Param], dtypes: Dtypes, [max_tokens, max_sequences]: [u64; 2]) -> Sizes {
        let elements = Self::trainable_elements(params);
        Sizes {
            frozen: params
                .iter()
                .filter(|p| !p.trainable)
                .map(Param::bytes)
                .sum(),
            trainable: elements * dtypes.params.bytes(),
            gradients: elements * dtypes.reduce.bytes(),
            optimizer: 2 * elements * dtypes.reduce.bytes(),
            batch: 4 * aligned(4 * max_tokens) + aligned(4 * (max_sequences + 1)) + aligned(8),
        }
    }

    /// Elements of all trainable params, each rounded up.
    pub fn trainable_elements(params: &[Param]) -> u64 {
        params.iter().filter(|p| p.trainable).map(rounded).sum()
    }

    /// Elements of the trainable params of a unit, each rounded up.
    pub fn unit_elements(params: &[Param], unit: usize) -> u64 {
        params
            .iter()
            .filter(|p| p.trainable && p.unit == unit)
            .map(rounded)
            .sum()
    }

    /// Allocates all buffers of a run of `units` units, zeroed.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` with the bytes wanted.
    pub fn new(
        device: &dyn Device,
        units: usize,
        params: &[Param],
        dtypes: Dtypes,
        [max_tokens, max_sequences]: [u64; 2],
        [arena_bytes, workspace_bytes]: [u64; 2],
    ) -> Result<Self> {
        let mut buffers = Vec::new();
        let mut alloc = |bytes: u64| -> Result<BufferRange> {
            let bytes = bytes.max(1);
            let buffer = device.alloc(bytes, MemoryKind::DEVICE)?;
            buffers.push((buffer, bytes));
            Ok(BufferRange {
                buffer,
                offset: 0,
                bytes,
            })
        };
        let mut ranges: Vec<Vec<BufferRange>> = vec![Vec::new(); params.len()];
        let mut gradients = vec![None; params.len()];
        for unit in 0..units {
            let frozen = |param: &Param| !param.trainable && param.unit == unit;
            let owned: Vec<_> = params
                .iter()
                .enumerate()
                .filter(|(_, p)| frozen(p))
                .collect();
            let bytes: u64 = owned.iter().map(|(_, param)| param.bytes()).sum();
            if bytes == 0 {
                continue;
            }
            let whole = alloc(bytes)?;
            let mut offset = 0;
            for (index, param) in owned {
                for bytes in param.run_bytes() {
                    ranges[index].push(BufferRange {
                        offset,
                        bytes,
                        ..whole
                    });
                    offset += aligned(bytes);
                }
            }
        }
        let elements = Self::trainable_elements(params);
        let values = alloc(elements * dtypes.params.bytes())?;
        let slope = alloc(elements * dtypes.reduce.bytes())?;
        let first = alloc(elements * dtypes.reduce.bytes())?;
        let second = alloc(elements * dtypes.reduce.bytes())?;
        let part = |whole: BufferRange, at: u64, count: u64, each: u64| BufferRange {
            offset: at * each,
            bytes: count * each,
            ..whole
        };
        let mut optimizer = Vec::with_capacity(units);
        let mut at = 0;
        for unit in 0..units {
            let begin = at;
            for (index, param) in params.iter().enumerate() {
                if param.trainable && param.unit == unit {
                    let count = param.elements();
                    ranges[index] = vec![part(values, at, count, dtypes.params.bytes())];
                    gradients[index] = Some(part(slope, at, count, dtypes.reduce.bytes()));
                    at += rounded(param);
                }
            }
            let state = |whole| part(whole, begin, at - begin, dtypes.reduce.bytes());
            let value = part(values, begin, at - begin, dtypes.params.bytes());
            optimizer.push([state(slope), value, state(first), state(second)]);
        }
        let arena = alloc(arena_bytes)?;
        let each = aligned(4 * max_tokens);
        let boundaries = 4 * (max_sequences + 1);
        let whole = alloc(4 * each + aligned(boundaries) + aligned(8))?;
        let mut batch: Vec<BufferRange> = (0..4)
            .map(|tensor| BufferRange {
                offset: tensor * each,
                bytes: 4 * max_tokens,
                ..whole
            })
            .collect();
        batch.push(BufferRange {
            offset: 4 * each,
            bytes: boundaries,
            ..whole
        });
        let result = BufferRange {
            offset: 4 * each + aligned(boundaries),
            bytes: 8,
            ..whole
        };
        let workspace = alloc(workspace_bytes)?;
        let all_gradients = BufferRange {
            bytes: elements * dtypes.reduce.bytes(),
            ..slope
        };
        Ok(Storage {
            params: ranges,
            gradients,
            optimizer,
            all_gradients,
            arena,
            batch,
            workspace,
            result,
            buffers,
        })
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The ranges of a param: one if dense, one a segment if packed.
    pub fn param(&self, param: usize) -> &[BufferRange] {
        &self.params[param]
    }

    /// The gradient of a trainable param.
    ///
    /// # Panics
    /// For a frozen param: nothing asks for its gradient.
    pub fn gradient(&self, param: usize) -> BufferRange {
        self.gradients[param].expect("the gradient of a trainable param")
    }

    /// First and second moment of a trainable param.
    ///
    /// # Panics
    /// For a frozen param.
    pub(super) fn moments(&self, param: usize) -> [BufferRange; 2] {
        // The three runs hold the same elements in the same order.
        let [_, _, first, second] = self.optimizer[0];
        let BufferRange { offset, bytes, .. } = self.gradient(param);
        [first.buffer, second.buffer].map(|buffer| BufferRange {
            buffer,
            offset,
            bytes,
        })
    }

    pub(super) fn gradients(&self) -> BufferRange {
        self.all_gradients
    }

    /// Gradient, values, first and second moment of a unit's trainable params.
    pub(super) fn optimizer_ranges(&self, unit: usize) -> [BufferRange; 4] {
        self.optimizer[unit]
    }

    pub(super) fn arena_range(&self, offset: u64, bytes: u64) -> BufferRange {
        BufferRange {
            offset,
            bytes,
            ..self.arena
        }
    }

    pub(super) fn batch_range(&self, tensor: usize, offset: u64, bytes: u64) -> BufferRange {
        let whole = self.batch[tensor];
        BufferRange {
            offset: whole.offset + offset,
            bytes,
            ..whole
        }
    }

    pub(super) fn workspace(&self) -> BufferRange {
        self.workspace
    }

    pub(super) fn result(&self) -> BufferRange {
        self.result
    }

    /// Uploads a micro-batch's tensors in the order of [`crate::program::BATCH`].
    pub(super) fn upload_batch(&self, device: &dyn Device, micro: &MicroBatch) -> Result<()> {
        let sequences = sequence_of_each_token(micro);
        let tensors = [
            &micro.tokens,
            &micro.positions,
            &micro.labels,
            &sequences,
            &micro.cu_seqlens,
        ];
        for (tensor, values) in tensors.into_iter().enumerate() {
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            let range = self.batch_range(tensor, 0, bytes.len() as u64);
            device.upload(&bytes, range, Stream(0))?;
        }
        Ok(())
    }

    /// Gives all buffers back.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn free(&mut self, device: &dyn Device) -> Result<()> {
        self.buffers
            .drain(..)
            .try_for_each(|(buffer, _)| device.free(buffer))
    }
}

/// The sequence number of each token, `[T]`.
fn sequence_of_each_token(micro: &MicroBatch) -> Vec<i32> {
    let bounds = micro.cu_seqlens.windows(2);
    let each = micro.sequences.iter().zip(bounds);
    each.flat_map(|(&number, ends)| std::iter::repeat_n(number, (ends[1] - ends[0]) as usize))
        .collect()
}

fn rounded(param: &Param) -> u64 {
    param.elements().div_ceil(ELEMENT_STEP) * ELEMENT_STEP
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
