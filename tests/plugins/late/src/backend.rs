//! The options -> devices, each over a `cpu` device of its own.

use std::sync::Arc;

use espalier_backend_cpu::CpuBackend;
use espalier_interface::{
    Backend, Device, DeviceInfo, OpId, Options, PluginError, Result, Services,
};

use crate::device::LateDevice;
use crate::settings::Settings;

/// The backend `late`.
pub struct LateBackend {
    cpu: CpuBackend,
    settings: Settings,
}

impl LateBackend {
    /// A backend that computes on the host's threads.
    ///
    /// # Errors
    /// `INVALID` for an option that is missing or no size.
    pub fn new(options: &Options, services: Arc<dyn Services>) -> Result<Self> {
        Ok(LateBackend {
            cpu: CpuBackend::new(services).with(options)?,
            settings: Settings::new(options)?,
        })
    }
}

impl Backend for LateBackend {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let machine = self.cpu.devices()?.remove(0);
        let device = |index| DeviceInfo {
            name: format!("late:{index}"),
            description: format!("a device that finishes later, on {}", machine.description),
            shares_host_memory: false,
            ..machine.clone()
        };
        Ok((0..self.settings.devices).map(device).collect())
    }

    fn ops(&self) -> Result<Option<Vec<OpId>>> {
        let mut ops = self.cpu.ops()?.unwrap_or_default();
        ops.retain(|op| !self.settings.hides.has(op));
        Ok(Some(ops))
    }

    fn open(&self, index: u32) -> Result<Box<dyn Device>> {
        let devices = self.settings.devices;
        if index >= devices {
            return Err(PluginError::invalid(format!(
                "device {index} of backend `late`: it has devices 0 to {}",
                devices - 1
            )));
        }
        let cpu = self.cpu.open(0)?;
        Ok(Box::new(LateDevice::new(cpu, index, &self.settings)))
    }
}
