//! A second storage beside one in use, with the buffers that both share.

use std::sync::Arc;

use espalier_interface::{Device, MemoryKind, Result, Stream};
use espalier_plan::storage_layout::{Part, StorageLayout};

use super::Storage;
use crate::executor::allocation::Allocation;

/// Which buffers of another storage are shared, and in which memory new ones are made.
pub struct Beside<'a> {
    /// Whether the frozen params of a unit stay where they are.
    pub keeps: &'a dyn Fn(usize) -> bool,
    /// Memory for the frozen params of the other units.
    pub kind: MemoryKind,
}

impl Storage {
    /// A second storage of the same trained params. On the same device it shares trained params,
    /// their state, the step's work memory, and the frozen units that `beside` keeps. The rest is
    /// allocated, zeroed.
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

    /// Bytes that [`Storage::beside`] allocates: for frozen params, and for everything else.
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

    /// The buffer of this storage that can be shared as `part` of another one.
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

    /// True where both storages have their trained params and state in the same memory.
    pub(in crate::executor) fn shares_state(&self, other: &Storage) -> bool {
        let values = |storage: &Storage| storage.parts.get(&Part::Values).cloned();
        match (values(self), values(other)) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one, &other),
            _ => false,
        }
    }

    /// True where both storages have the frozen params of `unit` in the same memory.
    pub(in crate::executor) fn shares_unit(&self, other: &Storage, unit: usize) -> bool {
        let frozen = |storage: &Storage| storage.parts.get(&Part::Frozen(unit)).cloned();
        match (frozen(self), frozen(other)) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one, &other),
            _ => false,
        }
    }

    /// Moves the content of mapped files into the device's memory.
    pub(in crate::executor) fn leave_mapped_files(
        &mut self,
        device: &Arc<dyn Device>,
    ) -> Result<()> {
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
}
