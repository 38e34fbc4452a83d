//! Bytes that a run needs and bytes that are available -> the refusal of a run that does not fit.

use espalier_interface::bytes::Bytes;
use espalier_system::memory::OutOfMemory;
use espalier_system::world::World;

use super::{HostMemoryPlan, RunPlan};
use crate::Error;

impl RunPlan {
    /// Bytes that the run can allocate, beyond what the program holds already. `host` is the
    /// available host memory, where known.
    pub fn available(&self, host: Option<u64>) -> u64 {
        if self.device_info.shares_host_memory {
            host.unwrap_or(u64::MAX)
        } else {
            self.device_info.free_bytes
        }
    }

    /// Bytes of a step on a device with memory of its own; 0 where it is the host.
    pub fn device_bytes(&self) -> u64 {
        if self.device_info.shares_host_memory {
            return 0;
        }
        self.memory.on_device()
    }

    /// Refuses a run that does not fit into `available` bytes, or not into its device.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the bytes needed and the bytes available.
    pub fn check(&self, available: u64) -> Result<(), Error> {
        self.check_needed(self.needed(), available)?;
        let (device, free) = (self.memory.on_device(), self.device_info.free_bytes);
        if device <= free {
            Ok(())
        } else {
            Err(Error::OutOfMemory(OutOfMemory {
                kind: self.device_info.name.clone(),
                needed: Bytes(device),
                available: Bytes(free),
            }))
        }
    }

    /// Bytes that the run needs of the memory that [`RunPlan::available`] counts. Where devices
    /// share the machine's memory, that is the sum over its ranks; else, one rank's. Memory that
    /// the program holds already is not included.
    pub fn needed(&self) -> u64 {
        if self.device_info.shares_host_memory {
            let host = self.host_memory();
            host.needed() - host.program
        } else {
            self.memory.on_device()
        }
    }

    /// The host memory of a machine for all its ranks.
    pub fn host_memory(&self) -> HostMemoryPlan {
        HostMemoryPlan::of(self)
    }

    /// Whether the run has one rank and keeps nothing on the host beside its device.
    pub fn is_alone(&self) -> bool {
        let sizes = self.storage_layout().sizes();
        let weights = sizes.machine_copy + sizes.frozen_on_host;
        let on_host = weights + sizes.trained_on_host + sizes.saved_on_host;
        self.demand.world == World::ONE && on_host == 0
    }

    /// Refuses a run that needs more than `available` bytes beyond what the program holds.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where `needed` is above `available`.
    pub fn check_needed(&self, needed: u64, available: u64) -> Result<(), Error> {
        if needed <= available {
            return Ok(());
        }
        let host = self.device_info.shares_host_memory;
        Err(Error::OutOfMemory(OutOfMemory {
            kind: if host {
                "host".to_owned()
            } else {
                self.device_info.name.clone()
            },
            needed: Bytes(needed),
            available: Bytes(available),
        }))
    }
}
