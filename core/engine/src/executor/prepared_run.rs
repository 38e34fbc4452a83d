//! A plan -> the device that carries it out, and the kernels that it has prepared for it.

use std::sync::Arc;

use espalier_interface::{Backend, BufferRange, Device, DeviceInfo, MemoryKind, PluginError};
use espalier_plan::plan::RunPlan;
use espalier_registry::Chosen;

use super::{PreparedKernels, Storage};
use crate::Error;
use crate::error::{BackendCall, schedule_failure};

/// A run before its weights are read: its plan, its device and its kernels.
pub struct PreparedRun {
    /// The plan.
    pub plan: RunPlan,
    /// The device of the rank.
    pub device: Arc<dyn Device>,
    /// Its kernels.
    pub kernels: PreparedKernels,
}

impl PreparedRun {
    /// Prepares the kernels of `plan` and adds their workspace to its memory.
    ///
    /// # Errors
    /// `Error::Plugin` for an op that the backend lacks or refuses, and for memory that collective
    /// calls of the host do not reach.
    pub fn new(
        mut plan: RunPlan,
        device: Arc<dyn Device>,
        backend: &Chosen<dyn Backend>,
    ) -> Result<Self, Error> {
        let kernels = PreparedKernels::new(&device, &plan)
            .map_err(|error| backend.failed("prepare", error))?;
        plan.set_workspace(kernels.workspace_bytes);
        if plan.host_calls {
            plan.stages_calls = stages_calls(device.as_ref(), &plan.device_info)?;
        }
        Ok(PreparedRun {
            plan,
            device,
            kernels,
        })
    }

    /// Allocates the run's storage.
    ///
    /// # Errors
    /// `Error::Plugin` for an allocation that fails.
    pub fn storage(&self) -> Result<Storage, Error> {
        Storage::new(&self.device, &self.plan.storage_layout()).during("alloc")
    }
}

/// Whether collective calls of the host pass through pinned memory. A device says by its addresses
/// what the host reaches, whatever it says of its memory.
fn stages_calls(device: &dyn Device, info: &DeviceInfo) -> Result<bool, Error> {
    if info.shares_host_memory && has_address(device, MemoryKind::DEVICE)? {
        return Ok(false);
    }
    if has_address(device, MemoryKind::PINNED)? {
        return Ok(true);
    }
    Err(schedule_failure(PluginError::unsupported(
        "the schedule asks for a collective call on a device whose memory the host does not reach, \
         and the device has no pinned memory with an address for the host: use a backend that has \
         (`host_address` of memory of kind `PINNED`), or one rank",
    )))
}

/// Whether memory of `kind` has an address for the host.
fn has_address(device: &dyn Device, kind: MemoryKind) -> Result<bool, Error> {
    let bytes = 64;
    let buffer = device.alloc(bytes, kind).during("alloc")?;
    let address = device.host_address(BufferRange {
        buffer,
        offset: 0,
        bytes,
    });
    device.free(buffer).during("free")?;
    Ok(address.is_some())
}

#[cfg(test)]
mod tests;
