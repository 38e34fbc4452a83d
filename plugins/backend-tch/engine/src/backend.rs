//! The processors as one device of libtorch, and its opening.

use std::sync::Arc;

use espalier_host_device::{HostDevice, HostOptions, processor};
use espalier_interface::{
    Backend, Device, DeviceInfo, OpId, Options, PluginError, Result, Services,
};
use espalier_tensor_ops::TensorKernels;

use crate::instructions::instruction_set;
use crate::torch::Torch;
use crate::{VERSION, allocator};

/// The backend `tch`. Its one device is the machine's processors: a libtorch with CUDA is used as
/// one without. Another device would be another index of [`Backend::open`], with a
/// [`Torch`](crate::Torch) on it and memory of its own.
pub struct TchBackend {
    services: Arc<dyn Services>,
    host: HostOptions,
}

impl TchBackend {
    /// A backend with as many threads as the host has, and the memory that `options` give it.
    ///
    /// # Errors
    /// `INVALID` for a text that is not a size.
    pub fn new(options: &Options, services: Arc<dyn Services>) -> Result<Self> {
        let host = HostOptions::default().with(options)?;
        Ok(TchBackend { services, host })
    }
}

impl Backend for TchBackend {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let memory = self.host.memory();
        let threads = self.services.threads();
        let words = if threads == 1 { "thread" } else { "threads" };
        Ok(vec![DeviceInfo {
            name: "cpu".to_owned(),
            description: format!("{}, libtorch {VERSION}, {threads} {words}", processor()),
            memory_bytes: memory.total_bytes,
            free_bytes: memory.free_bytes,
            instruction_set: instruction_set(threads),
            shares_host_memory: true,
            // libtorch allocates the tensors of a launch itself.
            exact_memory: false,
            head_chunk_bytes: None,
        }])
    }

    fn ops(&self) -> Result<Option<Vec<OpId>>> {
        Ok(Some(TensorKernels::<Torch>::ops()))
    }

    fn open(&self, index: u32) -> Result<Box<dyn Device>> {
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
