//! The machine's one copy of frozen units in host memory, as a device fetches from it.

use std::any::Any;
use std::sync::Arc;

use espalier_interface::{Buffer, BufferRange, Device, HostMemory, Result};

use super::Executor;

/// Host memory that is lent to a device until this is dropped.
pub(super) struct Lent {
    device: Arc<dyn Device>,
    buffer: Buffer,
    /// Keeps the memory alive.
    _owner: Arc<dyn Any + Send + Sync>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // A failure to free cannot be handled here; the process ends soon.
        let _ = self.device.free(self.buffer);
    }
}

impl Executor {
    /// Lets units be fetched from host memory that `owner` keeps alive. `units` has each unit's
    /// number and the first byte of its frozen run.
    ///
    /// # Errors
    /// `UNSUPPORTED` where the device cannot import host memory.
    pub fn lend(
        &mut self,
        owner: Arc<dyn Any + Send + Sync>,
        memory: HostMemory,
        units: &[(usize, u64)],
    ) -> Result<()> {
        let buffer = self.device.import(memory)?;
        for &(unit, offset) in units {
            let bytes = self.shard_layout.flat_params[unit].frozen_bytes;
            let copy = BufferRange {
                buffer,
                offset,
                bytes,
            };
            self.storage.set_machine_copy(unit, copy);
        }
        self.lent = Some(Lent {
            device: Arc::clone(&self.device),
            buffer,
            _owner: owner,
        });
        Ok(())
    }
}
