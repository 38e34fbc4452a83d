//! Memory on a device, freed with its last user.

use std::sync::Arc;

use espalier_interface::{Buffer, BufferRange, Device, MemoryKind, Result};

/// A buffer and its device.
pub(crate) struct Allocation {
    device: Arc<dyn Device>,
    buffer: Buffer,
    bytes: u64,
    kind: MemoryKind,
}

impl Allocation {
    /// `bytes` bytes of zeros, one at least.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` with the bytes wanted; `UNSUPPORTED` for a kind that the device does not
    /// have.
    pub(crate) fn new(device: &Arc<dyn Device>, bytes: u64, kind: MemoryKind) -> Result<Arc<Self>> {
        let bytes = bytes.max(1);
        Ok(Arc::new(Allocation {
            buffer: device.alloc(bytes, kind)?,
            device: Arc::clone(device),
            bytes,
            kind,
        }))
    }

    /// All of it.
    pub(crate) fn whole(&self) -> BufferRange {
        BufferRange {
            buffer: self.buffer,
            offset: 0,
            bytes: self.bytes,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn kind(&self) -> MemoryKind {
        self.kind
    }

    pub(crate) fn is_on(&self, device: &Arc<dyn Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // A failure to free cannot be handled here; the process ends soon.
        let _ = self.device.free(self.buffer);
    }
}
