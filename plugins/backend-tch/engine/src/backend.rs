//! The devices of libtorch, by the option `device`, and their opening.

use std::sync::Arc;

use espalier_host_device::{HostDevice, HostOptions, processor};
use espalier_interface::{
    Backend, Device, DeviceInfo, OpId, OptionKind, OptionSpec, Options, PluginError, Result,
    Services,
};
use espalier_tensor_ops::TensorKernels;

use crate::cuda::Cuda;
use crate::instructions::instruction_set;
use crate::torch::Torch;
use crate::{VERSION, allocator};

/// The option that says which devices there are. They are never mixed: ranks take a backend's
/// devices in turn, and one of them would train on the processors.
pub const DEVICE: OptionSpec = OptionSpec {
    name: "device",
    kind: OptionKind::TEXT,
    default: "\"cpu\"",
    range: "cpu | cuda",
    doc: "the devices that there are: the processors as one, or each CUDA device",
};

/// The backend `tch`.
pub struct TchBackend {
    services: Arc<dyn Services>,
    host: HostOptions,
    devices: Devices,
}

/// The devices that the backend offers.
enum Devices {
    /// One, the machine's processors.
    Processors,
    /// Those of CUDA.
    Cuda(Cuda),
}

impl TchBackend {
    /// A backend on the devices that `options` name, with as many threads as the host has, and the
    /// memory that `options` give it.
    ///
    /// # Errors
    /// `INVALID` for a text that is not a size, or a device of another kind. `DEVICE` where CUDA is
    /// asked for and there is none.
    pub fn new(options: &Options, services: Arc<dyn Services>) -> Result<Self> {
        let host = HostOptions::default().with(options)?;
        let devices = match options.0.get(DEVICE.name).and_then(|value| value.as_str()) {
            None | Some("cpu") => Devices::Processors,
            Some("cuda") => Devices::Cuda(Cuda::open()?),
            Some(other) => {
                let message = format!("device: expected `cpu` or `cuda`, found `{other}`");
                return Err(PluginError::invalid(message));
            }
        };
        Ok(TchBackend {
            services,
            host,
            devices,
        })
    }

    /// The processors.
    fn processors(&self) -> DeviceInfo {
        let memory = self.host.memory();
        let threads = self.services.threads();
        let words = if threads == 1 { "thread" } else { "threads" };
        DeviceInfo {
            name: "cpu".to_owned(),
            description: format!("{}, libtorch {VERSION}, {threads} {words}", processor()),
            memory_bytes: memory.total_bytes,
            free_bytes: memory.free_bytes,
            instruction_set: instruction_set(threads),
            shares_host_memory: true,
            // libtorch allocates the tensors of a launch itself.
            exact_memory: false,
            head_chunk_bytes: None,
        }
    }
}

impl Backend for TchBackend {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        match &self.devices {
            Devices::Processors => Ok(vec![self.processors()]),
            Devices::Cuda(cuda) => cuda.devices(&self.host),
        }
    }

    fn ops(&self) -> Result<Option<Vec<OpId>>> {
        Ok(Some(TensorKernels::<Torch>::ops()))
    }

    fn open(&self, index: u32) -> Result<Box<dyn Device>> {
        if let Devices::Cuda(cuda) = &self.devices {
            return cuda.device(index, self.services.clone(), &self.host);
        }
        if index != 0 {
            return Err(PluginError::invalid(format!(
                "device {index} of backend `tch`: there is only device 0, the processors"
            )));
        }
        allocator::keep_memory();
        let torch = Arc::new(Torch::on_cpu(self.services.threads()));
        let maker = Box::new(TensorKernels::new("tch", torch));
        let device = HostDevice::new(maker, self.services.clone(), self.host.clone());
        Ok(Box::new(device))
    }
}
