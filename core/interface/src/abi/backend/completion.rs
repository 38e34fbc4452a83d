//! The table of backends that finish later: events that are queried and freed, and kernels that are
//! released, besides the table of all backends.

use abi_stable::StableAbi;

use super::plugin_side::device;
use crate::Result;
use crate::abi::Opaque;
use crate::abi::reply::{Reply, guard, plain};
use crate::role::{Event, Kernel};

/// Version of [`CompletionTable`].
pub const COMPLETION_VERSION: u32 = 1;

/// The functions of a backend besides its own table. The first argument is a device.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct CompletionTable {
    /// [`crate::Streams::query`]: 1 where the event is complete, else 0.
    pub query: extern "C" fn(Opaque, u64) -> Reply<u32>,
    /// [`crate::Streams::free_event`].
    pub free_event: extern "C" fn(Opaque, u64) -> Reply<()>,
    /// [`crate::Kernels::release`].
    pub release: extern "C" fn(Opaque, u64) -> Reply<()>,
}

pub(in crate::abi) static COMPLETION_TABLE: CompletionTable = CompletionTable {
    query,
    free_event,
    release,
};

extern "C" fn query(handle: Opaque, event: u64) -> Reply<u32> {
    guard(|| Ok(u32::from(device(handle).query(Event(event))?)))
}

extern "C" fn free_event(handle: Opaque, event: u64) -> Reply<()> {
    guard(|| device(handle).free_event(Event(event)))
}

extern "C" fn release(handle: Opaque, kernel: u64) -> Reply<()> {
    guard(|| device(handle).release(Kernel(kernel)))
}

impl CompletionTable {
    pub(in crate::abi) fn is_complete(&self, handle: Opaque, event: Event) -> Result<bool> {
        plain((self.query)(handle, event.0)).map(|complete| complete != 0)
    }

    pub(in crate::abi) fn free(&self, handle: Opaque, event: Event) -> Result<()> {
        plain((self.free_event)(handle, event.0))
    }

    pub(in crate::abi) fn release_kernel(&self, handle: Opaque, kernel: Kernel) -> Result<()> {
        plain((self.release)(handle, kernel.0))
    }
}
