//! Operands of a step -> their ranges of the device's memory.

use espalier_compile::program::ValueMemory;
use espalier_interface::{BufferRange, PluginError};
use espalier_plan::step_plan::{Region, RegionKind};

use super::Executor;
use super::storage::part;
use crate::error::{Result, schedule_failure};

impl Executor {
    /// `bytes` bytes of a value of the micro-batch in `slot` of its sweep, from byte `offset` of
    /// its region on.
    pub(super) fn value(
        &self,
        (region, slot): (ValueMemory, u64),
        offset: u64,
        bytes: u64,
        regions: &[Region],
    ) -> BufferRange {
        match region {
            ValueMemory::Arena => self.storage.arena_range(self.in_arena(slot, offset), bytes),
            ValueMemory::Batch(tensor) => self.storage.batch_range(slot, tensor, offset, bytes),
            ValueMemory::Saved(unit) => {
                let saved = self.shard_layout.saved[unit];
                let mut regions = regions.iter();
                let brought = regions.find(|one| one.unit == unit && one.kind == RegionKind::Saved);
                match brought {
                    Some(region) => {
                        let block = region.offset + slot * saved.bytes;
                        self.storage.region(block + offset, bytes)
                    }
                    None => {
                        let at = saved.stays_at.expect("a block that leaves has a region");
                        let behind = match slot {
                            0 => at,
                            _ => {
                                self.shard_layout.own_begin(slot)
                                    + self.shard_layout.passing_bytes
                                    + at
                            }
                        };
                        let block = self.program.arena.bytes() + behind;
                        self.storage.arena_range(block + offset, bytes)
                    }
                }
            }
        }
    }

    /// The place of a value at `offset` of the arena for the micro-batch in `slot`: behind the
    /// arena where later micro-batches have it for themselves.
    pub(super) fn in_arena(&self, slot: u64, offset: u64) -> u64 {
        let arena = &self.program.arena;
        if slot == 0 || !arena.is_of_micro_batch(offset) {
            return offset;
        }
        arena.bytes() + self.shard_layout.own_begin(slot) + (offset - arena.cache)
    }

    /// The ranges of a param, where it is whole.
    pub(super) fn param(
        &self,
        param: usize,
        regions: &[Region],
        ranges: &mut Vec<BufferRange>,
    ) -> Result<()> {
        let resident = self.storage.param(param);
        if !resident.is_empty() {
            ranges.extend(resident);
            return Ok(());
        }
        let unit = self.params[param].unit;
        let flat = &self.shard_layout.flat_params[unit];
        if self.params[param].trainable {
            let run = self.whole(unit, RegionKind::Trainable, regions)?;
            ranges.push(part(
                run,
                flat.elements_of(param),
                self.dtypes.params.bytes(),
            ));
        } else {
            let run = self.whole(unit, RegionKind::Frozen, regions)?;
            let segments = flat.segments_of(param).iter();
            ranges.extend(segments.map(|bytes| part(run, bytes, 1)));
        }
        Ok(())
    }

    /// The gradient that a micro-batch adds to.
    pub(super) fn gradient(&self, param: usize, regions: &[Region]) -> Result<BufferRange> {
        if let Some(resident) = self.storage.gradient(param) {
            return Ok(resident);
        }
        let unit = self.params[param].unit;
        let run = self.whole(unit, RegionKind::Gradients, regions)?;
        let elements = self.shard_layout.flat_params[unit].elements_of(param);
        Ok(part(run, elements, self.dtypes.gradients.bytes()))
    }

    /// The region of a unit that holds `kind`.
    fn whole(&self, unit: usize, kind: RegionKind, regions: &[Region]) -> Result<BufferRange> {
        let mut regions = regions.iter();
        let found = regions.find(|region| region.unit == unit && region.kind == kind);
        match found {
            Some(region) => Ok(self.storage.region(region.offset, region.bytes)),
            None => Err(schedule_failure(PluginError::unsupported(format!(
                "unit `{}` is not on the device as a whole: this needs a run on one rank without offload \
                 (`--plugins single`)",
                self.program.units[unit].name
            )))),
        }
    }
}
