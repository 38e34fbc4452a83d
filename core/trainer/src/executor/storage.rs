//! Every byte of a run on its device: frozen params by unit, trainable ones in one run, arena, batch and workspace.

mod layout;
mod unit_runs;

use std::collections::BTreeMap;
use std::sync::Arc;

use espalier_interface::{BufferRange, Device, MemoryKind, Result, Stream};

use super::allocation::Allocation;
use crate::arena::aligned;
use crate::data::MicroBatch;
use crate::params::{Dtypes, Param};

pub use layout::StorageLayout;
pub use unit_runs::{UnitRuns, part_length};

use layout::{Part, batch_bytes};

/// Elements to which a trainable param's place is rounded up: 64 bytes or more in every dtype.
const ELEMENT_STEP: u64 = 64;

/// A run's buffers and where each param lies in them.
pub struct Storage {
    parts: BTreeMap<Part, Arc<Allocation>>,
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

/// Which buffers of another storage are held on to, and where the others are made.
pub struct Beside<'a> {
    /// Whether the frozen params of a unit stay where they are.
    pub keeps: &'a dyn Fn(usize) -> bool,
    /// Memory for the frozen params of the other units.
    pub kind: MemoryKind,
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
    pub fn sizes(params: &[Param], dtypes: Dtypes, batch: [u64; 2]) -> Sizes {
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
            batch: batch_bytes(batch),
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

    /// Allocates all buffers of a run, zeroed.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` with the bytes wanted.
    pub fn new(device: &Arc<dyn Device>, layout: &StorageLayout<'_>) -> Result<Self> {
        let device_memory = |(part, bytes)| {
            let made = Allocation::new(device, bytes, MemoryKind::DEVICE)?;
            Ok((part, made))
        };
        let parts = layout.parts().into_iter().map(device_memory);
        Ok(Storage::of(layout, parts.collect::<Result<_>>()?))
    }

    /// A storage of the same trained params beside this one. On the same device it holds on to what can stay: trained
    /// params, moments, what a step works in, and the frozen units that `beside` keeps. The rest is allocated, zeroed.
    ///
    /// # Errors
    /// As [`Storage::new`]; `UNSUPPORTED` for a kind of memory that the device does not have.
    pub fn beside(
        &self,
        device: &Arc<dyn Device>,
        layout: &StorageLayout<'_>,
        beside: &Beside<'_>,
    ) -> Result<Self> {
        let parts = layout.parts().into_iter().map(|(part, bytes)| {
            if let Some(held) = self.held(device, (part, bytes), beside.keeps) {
                return Ok((part, Arc::clone(held)));
            }
            let kind = match part {
                Part::Frozen(_) => beside.kind,
                _ => MemoryKind::DEVICE,
            };
            Ok((part, Allocation::new(device, bytes, kind)?))
        });
        Ok(Storage::of(layout, parts.collect::<Result<_>>()?))
    }

    /// Bytes that [`Storage::beside`] allocates: of frozen params, and of all else.
    pub fn bytes_beside(
        &self,
        device: &Arc<dyn Device>,
        layout: &StorageLayout<'_>,
        keeps: &dyn Fn(usize) -> bool,
    ) -> [u64; 2] {
        let parts = layout.parts().into_iter();
        let made = parts.filter(|part| self.held(device, *part, keeps).is_none());
        made.fold([0, 0], |[frozen, others], (part, bytes)| match part {
            Part::Frozen(_) => [frozen + bytes, others],
            _ => [frozen, others + bytes],
        })
    }

    /// The buffer of this storage that serves as `part` of another one, too.
    fn held(
        &self,
        device: &Arc<dyn Device>,
        (part, bytes): (Part, u64),
        keeps: &dyn Fn(usize) -> bool,
    ) -> Option<&Arc<Allocation>> {
        let held = self.parts.get(&part)?;
        let stays = match part {
            Part::Frozen(unit) => keeps(unit),
            _ => true,
        };
        (stays && held.bytes() >= bytes && held.is_on(device)).then_some(held)
    }

    /// True where both storages have their trained params and moments in the same memory.
    pub(super) fn shares_state(&self, other: &Storage) -> bool {
        let values = |storage: &Storage| storage.parts.get(&Part::Values).cloned();
        match (values(self), values(other)) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one, &other),
            _ => false,
        }
    }

    /// True where both storages have the frozen params of `unit` in the same memory.
    pub(super) fn shares_unit(&self, other: &Storage, unit: usize) -> bool {
        let frozen = |storage: &Storage| storage.parts.get(&Part::Frozen(unit)).cloned();
        match (frozen(self), frozen(other)) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one, &other),
            _ => false,
        }
    }

    /// Moves what lies in mapped files into the device's memory.
    pub(super) fn leave_mapped_files(&mut self, device: &Arc<dyn Device>) -> Result<()> {
        let mapped = |held: &Arc<Allocation>| held.kind() == MemoryKind::MAPPED;
        for held in self.parts.values_mut().filter(|held| mapped(held)) {
            let moved = Allocation::new(device, held.bytes(), MemoryKind::DEVICE)?;
            let (from, to) = (held.whole(), moved.whole());
            device.copy(from, to, Stream(0))?;
            device.synchronize(Stream(0))?;
            let ranges = self.params.iter_mut().flatten();
            for range in ranges.filter(|range| range.buffer == from.buffer) {
                range.buffer = to.buffer;
            }
            *held = moved;
        }
        Ok(())
    }

    /// Places every param in the buffers of its part.
    fn of(layout: &StorageLayout<'_>, parts: BTreeMap<Part, Arc<Allocation>>) -> Self {
        let StorageLayout {
            units,
            params,
            dtypes,
            batch: [max_tokens, max_sequences],
            ..
        } = *layout;
        let whole = |part: Part| parts[&part].whole();
        let mut ranges: Vec<Vec<BufferRange>> = vec![Vec::new(); params.len()];
        let mut gradients = vec![None; params.len()];
        for unit in 0..units {
            let mut offset = 0;
            for (index, param) in layout.frozen(unit) {
                for bytes in param.run_bytes() {
                    ranges[index].push(BufferRange {
                        offset,
                        bytes,
                        ..whole(Part::Frozen(unit))
                    });
                    offset += aligned(bytes);
                }
            }
        }
        let elements = Self::trainable_elements(params);
        let [values, slope] = [Part::Values, Part::Gradients].map(whole);
        let [first, second] = [Part::FirstMoment, Part::SecondMoment].map(whole);
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
        let each = aligned(4 * max_tokens);
        let boundaries = 4 * (max_sequences + 1);
        let batch = whole(Part::Batch);
        let mut tensors: Vec<BufferRange> = (0..4)
            .map(|tensor| BufferRange {
                offset: tensor * each,
                bytes: 4 * max_tokens,
                ..batch
            })
            .collect();
        tensors.push(BufferRange {
            offset: 4 * each,
            bytes: boundaries,
            ..batch
        });
        let result = BufferRange {
            offset: 4 * each + aligned(boundaries),
            bytes: 8,
            ..batch
        };
        let all_gradients = BufferRange {
            bytes: elements * dtypes.reduce.bytes(),
            ..slope
        };
        let (arena, workspace) = (whole(Part::Arena), whole(Part::Workspace));
        Storage {
            parts,
            params: ranges,
            gradients,
            optimizer,
            all_gradients,
            arena,
            batch: tensors,
            workspace,
            result,
        }
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.parts.values().map(|part| part.bytes()).sum()
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
