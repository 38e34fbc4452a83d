//! The machine as one device, and its opening.

use std::path::PathBuf;
use std::sync::Arc;

use espalier_interface::{Backend, Device, DeviceInfo, Options, PluginError, Result, Services};

use crate::device::CpuDevice;
use crate::{machine, mapped_file};

/// The backend `cpu`.
pub struct CpuBackend {
    services: Arc<dyn Services>,
    mapped_dir: PathBuf,
}

impl CpuBackend {
    /// A backend that computes on the host's threads.
    pub fn new(services: Arc<dyn Services>) -> Self {
        CpuBackend {
            services,
            mapped_dir: mapped_file::default_folder(),
        }
    }

    /// The backend with the folder of mapped files that `options` name, if they name one.
    pub fn with(mut self, options: &Options) -> Self {
        if let Some(folder) = options.0.get("mapped_dir").and_then(|dir| dir.as_str()) {
            self.mapped_dir = PathBuf::from(folder);
        }
        self
    }
}

impl Backend for CpuBackend {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let memory = machine::memory();
        Ok(vec![DeviceInfo {
            name: "cpu".to_owned(),
            description: machine::description(self.services.threads()),
            memory_bytes: memory.total_bytes,
            free_bytes: memory.free_bytes,
            instruction_set: machine::instruction_set().to_owned(),
            shares_host_memory: true,
            exact_memory: true,
        }])
    }

    fn open(&self, index: u32) -> Result<Box<dyn Device>> {
        if index != 0 {
            let message = format!("device {index} of backend `cpu`: there is only device 0");
            return Err(PluginError::invalid(message));
        }
        let device = CpuDevice::new(self.services.clone());
        Ok(Box::new(device.mapping_in(self.mapped_dir.clone())))
    }
}
