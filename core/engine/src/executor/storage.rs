//! Every byte of a run on its device: frozen params by unit, trainable ones in one run, arena, batch and workspace.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use espalier_compile::arena::aligned;
use espalier_data::MicroBatch;
use espalier_interface::schedule::Place;
use espalier_interface::{BufferRange, DType, Device, MemoryKind, Result, Stream};
use espalier_plan::storage_layout::{Part, StateKind, StorageLayout};

use super::allocation::Allocation;

/// A run's buffers and where each param lies in them.
pub struct Storage {
    parts: BTreeMap<Part, Arc<Allocation>>,
    /// Ranges of each param: one if dense, one a segment if packed.
    params: Vec<Vec<BufferRange>>,
    /// Gradient of each param; empty for a frozen one.
    gradients: Vec<Option<BufferRange>>,
    /// For each unit, this rank's gradients, values, first and second moments of its trainable params: of all of them, or of
    /// its part. Where gradients are not cut, all that belongs to the step so far; else what is reduced.
    optimizer: Vec<[BufferRange; 4]>,
    /// For each unit that is cut, this rank's part of the frozen run, or the machine's copy of it.
    frozen: Vec<Option<BufferRange>>,
    /// For each unit, where its saved activations lie on the host between its passes.
    saved: Vec<Option<BufferRange>>,
    whole_gradients: BufferRange,
    regions: Option<BufferRange>,
    arena: BufferRange,
    batch: Vec<BufferRange>,
    workspace: BufferRange,
    result: BufferRange,
    /// One number a unit, each in 64 bytes of its own.
    unit_results: BufferRange,
}

/// Which buffers of another storage are held on to, and where the others are made.
pub struct Beside<'a> {
    /// Whether the frozen params of a unit stay where they are.
    pub keeps: &'a dyn Fn(usize) -> bool,
    /// Memory for the frozen params of the other units.
    pub kind: MemoryKind,
}

impl Storage {
    /// Allocates all buffers of a run, zeroed.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` with the bytes wanted.
    pub fn new(device: &Arc<dyn Device>, layout: &StorageLayout<'_>) -> Result<Self> {
        let device_memory = |(part, bytes): (Part, u64)| {
            let made = Allocation::new(device, bytes, part.kind())?;
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
                part => part.kind(),
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
        let shard_layout = layout.shard_layout;
        for unit in 0..units {
            let resident = parts.get(&Part::Frozen(unit)).map(|part| part.whole());
            for (index, segments) in &shard_layout.runs[unit].frozen {
                let Some(resident) = resident else { continue };
                let segment = |bytes: &Range<u64>| part(resident, bytes, 1);
                ranges[*index] = segments.iter().map(segment).collect();
            }
        }
        let [values, gradients_at] = [Part::Values, Part::Gradients].map(whole);
        let [first, second] = [Part::FirstMoment, Part::SecondMoment].map(whole);
        let [params_bytes, reduce_bytes] = [dtypes.params, dtypes.reduce].map(DType::bytes);
        let mut optimizer = Vec::with_capacity(units);
        let mut frozen = Vec::with_capacity(units);
        let mut saved = Vec::with_capacity(units);
        let mut taken: BTreeMap<Part, u64> = BTreeMap::new();
        let mut own = |unit: usize, kept: StateKind| {
            let (side, bytes) = layout.own(unit, kept)?;
            let place = Part::Own(kept, side);
            let offset = taken.entry(place).or_default();
            let begin = *offset;
            *offset += bytes;
            let buffer = parts.get(&place)?.whole();
            Some(part(buffer, &(begin..begin + bytes), 1))
        };
        // How far the runs that are not cut are filled: gradients and moments, then values.
        let mut filled = [0, 0];
        for unit in 0..units {
            frozen.push(own(unit, StateKind::Frozen));
            saved.push(own(unit, StateKind::Saved));
            let runs = &shard_layout.runs[unit];
            let places = [
                (StateKind::Gradients, gradients_at, reduce_bytes, 0),
                (StateKind::Values, values, params_bytes, 1),
                (StateKind::FirstMoment, first, reduce_bytes, 0),
                (StateKind::SecondMoment, second, reduce_bytes, 0),
            ];
            optimizer.push(places.map(|(kept, whole, each, which)| {
                let all = filled[which]..filled[which] + runs.elements;
                own(unit, kept).unwrap_or(part(whole, &all, each))
            }));
            let within = |whole: BufferRange, begin: u64, elements: &Range<u64>, each: u64| {
                part(whole, &(begin + elements.start..begin + elements.end), each)
            };
            let place = shard_layout.placements[unit];
            for (index, elements) in &runs.trainable {
                if place.optimizer == Place::Replicated {
                    gradients[*index] =
                        Some(within(gradients_at, filled[0], elements, reduce_bytes));
                }
                if place.trainable == Place::Replicated {
                    ranges[*index] = vec![within(values, filled[1], elements, params_bytes)];
                }
            }
            filled[0] += u64::from(place.optimizer == Place::Replicated) * runs.elements;
            filled[1] += u64::from(place.trainable == Place::Replicated) * runs.elements;
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
        let unit_results = BufferRange {
            offset: result.offset + aligned(8),
            bytes: aligned(8) * units as u64,
            ..batch
        };
        let whole_gradients = part(gradients_at, &(0..filled[0]), reduce_bytes);
        let regions = parts.get(&Part::Regions).map(|part| part.whole());
        let (arena, workspace) = (whole(Part::Arena), whole(Part::Workspace));
        Storage {
            parts,
            params: ranges,
            gradients,
            optimizer,
            frozen,
            saved,
            whole_gradients,
            regions,
            arena,
            batch: tensors,
            workspace,
            result,
            unit_results,
        }
    }

    /// Bytes of all buffers on the device.
    pub fn bytes(&self) -> u64 {
        let parts = self.parts.iter();
        let on_device = parts.filter(|(part, _)| part.kind() == MemoryKind::DEVICE);
        on_device.map(|(_, held)| held.bytes()).sum()
    }

    /// The ranges of a param that lies whole on the device: one if dense, one a segment if packed. None of one that does
    /// not.
    pub fn param(&self, param: usize) -> &[BufferRange] {
        &self.params[param]
    }

    /// The gradient of a trainable param that is not cut.
    pub fn gradient(&self, param: usize) -> Option<BufferRange> {
        self.gradients[param]
    }

    /// The gradients that are not cut.
    pub(super) fn whole_gradients(&self) -> BufferRange {
        self.whole_gradients
    }

    /// This rank's gradients, values, first and second moments of a unit's trainable params.
    pub(super) fn optimizer_ranges(&self, unit: usize) -> [BufferRange; 4] {
        self.optimizer[unit]
    }

    /// This rank's part of a unit's frozen run, or the machine's copy of it; none where it lies whole on the device.
    pub(super) fn frozen_home(&self, unit: usize) -> Option<BufferRange> {
        self.frozen[unit]
    }

    /// Where a unit's saved activations lie on the host between its passes; none where they stay on the device.
    pub(super) fn saved_home(&self, unit: usize) -> Option<BufferRange> {
        self.saved[unit]
    }

    /// Where this rank keeps its elements of what is trained of a unit; its frozen run is elsewhere.
    pub fn kept(&self, unit: usize, kept: StateKind) -> BufferRange {
        let [gradients, values, first, second] = self.optimizer[unit];
        match kept {
            StateKind::Gradients => gradients,
            StateKind::FirstMoment => first,
            StateKind::SecondMoment => second,
            StateKind::Values | StateKind::Frozen | StateKind::Saved => values,
        }
    }

    /// Lets a unit's frozen run be fetched from the machine's copy.
    pub fn set_machine_copy(&mut self, unit: usize, copy: BufferRange) {
        self.frozen[unit] = Some(copy);
    }

    /// Bytes of what the schedule brings.
    pub(super) fn region(&self, offset: u64, bytes: u64) -> BufferRange {
        let regions = self
            .regions
            .expect("a schedule that brings bytes has regions");
        BufferRange {
            offset,
            bytes,
            ..regions
        }
    }

    /// Where a number of a unit is read back from.
    pub(super) fn unit_result(&self, unit: usize) -> BufferRange {
        BufferRange {
            offset: self.unit_results.offset + unit as u64 * aligned(8),
            bytes: 8,
            ..self.unit_results
        }
    }

    /// All that a step works in.
    pub(super) fn arena(&self) -> BufferRange {
        self.arena
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

    /// Uploads a micro-batch's tensors in the order of [`espalier_compile::program::BATCH`].
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

/// Elements `within` a run whose elements have `each` bytes.
pub(super) fn part(run: BufferRange, within: &Range<u64>, each: u64) -> BufferRange {
    BufferRange {
        offset: run.offset + within.start * each,
        bytes: (within.end - within.start) * each,
        ..run
    }
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
