//! Operands of a step -> their ranges of the device's memory.

use espalier_compile::program::ValueMemory;
use espalier_interface::{BufferRange, PluginError};
use espalier_plan::step_plan::{Region, RegionKind};

use super::Executor;
use super::storage::part;
use crate::error::{Result, schedule_failure};

impl Executor {
    /// `bytes` bytes of a value from byte `offset` of its region on.
    pub(super) fn value(
        &self,
        region: ValueMemory,
        offset: u64,
        bytes: u64,
        regions: &[Region],
    ) -> BufferRange {
        match region {
            ValueMemory::Arena => self.storage.arena_range(offset, bytes),
            ValueMemory::Batch(tensor) => self.storage.batch_range(tensor, offset, bytes),
            ValueMemory::Saved(unit) => {
                let mut regions = regions.iter();
                let brought = regions.find(|one| one.unit == unit && one.kind == RegionKind::Saved);
                match brought {
                    Some(region) => self.storage.region(region.offset + offset, bytes),
                    None => {
                        let at = self.shard_layout.saved[unit].stays_at;
                        let at = at.expect("a block that leaves has a region");
                        let behind = self.program.arena.bytes() + at;
                        self.storage.arena_range(behind + offset, bytes)
                    }
                }
            }
        }
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
        Ok(part(run, elements, self.dtypes.reduce.bytes()))
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
