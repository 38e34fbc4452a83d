//! The buffers of a run: frozen params by unit, trainable params in one run, arena, batch and
//! workspace.

mod batch;
mod beside;
mod ranges;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use espalier_data::MicroBatch;
use espalier_interface::{BufferRange, Device, MemoryKind, Result};
use espalier_plan::plan::Labelled;
use espalier_plan::storage_layout::{Part, StateKind, StorageLayout};

use super::allocation::Allocation;

pub use beside::Beside;

use batch::BatchRanges;
pub(super) use ranges::TrainedRun;

/// A run's buffers and the location of each param in them.
pub struct Storage {
    parts: BTreeMap<Part, Arc<Allocation>>,
    /// Ranges of each param: one if dense, one a segment if packed.
    params: Vec<Vec<BufferRange>>,
    /// Gradient of each param; empty for a frozen one.
    gradients: Vec<Option<BufferRange>>,
    /// For each unit, what this rank keeps of its trainable run. Gradients that are not cut hold
    /// the step's sum so far; cut ones hold the reduced part.
    trained: Vec<TrainedRun>,
    /// For each unit that is cut, this rank's part of the frozen run, or the machine's copy of it.
    frozen: Vec<Option<BufferRange>>,
    /// For each unit, the host memory of its saved activations between its passes.
    saved: Vec<Option<BufferRange>>,
    whole_gradients: BufferRange,
    regions: Option<BufferRange>,
    staging: Option<BufferRange>,
    arena: BufferRange,
    batch: BatchRanges,
    workspace: BufferRange,
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

    /// Bytes of all buffers on the device.
    pub fn bytes(&self) -> u64 {
        let parts = self.parts.iter();
        let on_device = parts.filter(|(part, _)| part.kind() == MemoryKind::DEVICE);
        on_device.map(|(_, held)| held.bytes()).sum()
    }

    /// The ranges of a param that is whole on the device: one if dense, one per segment if
    /// packed. Empty for other params.
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

    /// What this rank keeps of a unit's trainable run.
    pub(super) fn trained(&self, unit: usize) -> &TrainedRun {
        &self.trained[unit]
    }

    /// This rank's part of a unit's frozen run, or the machine's copy of it; none where it is
    /// whole on the device.
    pub(super) fn frozen_home(&self, unit: usize) -> Option<BufferRange> {
        self.frozen[unit]
    }

    /// The host memory of a unit's saved activations between its passes; none where they stay on
    /// the device.
    pub(super) fn saved_home(&self, unit: usize) -> Option<BufferRange> {
        self.saved[unit]
    }

    /// Where this rank keeps its elements of a unit's trainable run. The frozen run is elsewhere.
    pub fn kept(&self, unit: usize, kept: StateKind) -> BufferRange {
        let run = &self.trained[unit];
        match kept {
            StateKind::Gradients => run.gradients,
            StateKind::State(tensor) => run.state[tensor],
            StateKind::Values | StateKind::Frozen | StateKind::Saved => run.values,
        }
    }

    /// Lets a unit's frozen run be fetched from the machine's copy.
    pub fn set_machine_copy(&mut self, unit: usize, copy: BufferRange) {
        self.frozen[unit] = Some(copy);
    }

    /// A range of the memory that the schedule's regions share.
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

    /// The pinned memory that collective calls pass through; none where they need none.
    pub(super) fn staging(&self) -> Option<BufferRange> {
        self.staging
    }

    /// Where a number of a unit is read back from.
    pub(super) fn unit_result(&self, unit: usize) -> BufferRange {
        self.batch.unit_result(unit)
    }

    /// The numbers of all units.
    pub(super) fn unit_results(&self) -> BufferRange {
        self.batch.unit_results()
    }

    /// The arena: all values of a step.
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

    /// `bytes` bytes of a tensor of the micro-batch in `slot` of a sweep, from byte `offset` on.
    pub(super) fn batch_range(
        &self,
        slot: u64,
        tensor: usize,
        offset: u64,
        bytes: u64,
    ) -> BufferRange {
        self.batch.tensor(slot, tensor, offset, bytes)
    }

    pub(super) fn workspace(&self) -> BufferRange {
        self.workspace
    }

    pub(super) fn result(&self) -> BufferRange {
        self.batch.result()
    }

    /// Uploads the tensors of the micro-batch in `slot` of a sweep; of labels only those of
    /// `labelled`, together.
    pub(super) fn upload_batch(
        &self,
        device: &dyn Device,
        slot: u64,
        micro: &MicroBatch,
        labelled: Option<&Labelled>,
    ) -> Result<()> {
        self.batch.upload(device, (slot, micro), labelled)
    }
}

/// Elements `within` a run whose elements have `each` bytes.
pub(super) fn part(run: BufferRange, within: &Range<u64>, each: u64) -> BufferRange {
    BufferRange {
        offset: run.offset + within.start * each,
        bytes: (within.end - within.start) * each,
        ..run
    }
}
