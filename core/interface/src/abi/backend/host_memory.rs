//! The table of backends that can use host memory as buffers, besides the table of all backends.

use std::ptr::NonNull;

use abi_stable::StableAbi;

use super::plugin_side::device;
use crate::abi::Opaque;
use crate::abi::reply::{Reply, guard, plain};
use crate::role::{Buffer, HostMemory};
use crate::{PluginError, Result};

/// Version of [`HostMemoryTable`].
pub const HOST_MEMORY_VERSION: u32 = 1;

/// The functions of a backend besides its own table. The first argument is a device.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct HostMemoryTable {
    /// [`crate::Memory::import`] of an address and a length in bytes.
    pub import: extern "C" fn(Opaque, *mut u8, u64) -> Reply<u64>,
}

pub(in crate::abi) static HOST_MEMORY_TABLE: HostMemoryTable = HostMemoryTable { import };

extern "C" fn import(handle: Opaque, address: *mut u8, bytes: u64) -> Reply<u64> {
    guard(|| {
        let Some(address) = NonNull::new(address) else {
            return Err(PluginError::invalid("memory of the host's at address 0"));
        };
        // SAFETY: the host's side made the call from a `HostMemory`, whose maker promised this.
        let memory = unsafe { HostMemory::new(address, bytes) };
        Ok(device(handle).import(memory)?.0)
    })
}

impl HostMemoryTable {
    /// Lends `memory` to the device of `handle`.
    pub(in crate::abi) fn lend(&self, handle: Opaque, memory: HostMemory) -> Result<Buffer> {
        let address = memory.address().as_ptr();
        plain((self.import)(handle, address, memory.bytes())).map(Buffer)
    }
}
