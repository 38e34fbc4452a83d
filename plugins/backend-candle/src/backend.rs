//! The machine as one device of candle, and its opening.

use std::sync::Arc;

use espalier_host_device::{HostDevice, HostOptions, processor};
use espalier_interface::{Backend, Device, DeviceInfo, OpId, PluginError, Result, Services};
use espalier_tensor_ops::TensorKernels;

use crate::library::Candle;

/// The version that `Cargo.toml` names.
const VERSION: &str = "0.11.1";

/// Bytes of logits in a chunk of the model's head. Each chunk copies the head's weight twice.
const HEAD_CHUNK_BYTES: u64 = 128 << 20;

/// The backend `candle`.
pub struct CandleBackend {
    services: Arc<dyn Services>,
    host: HostOptions,
}

impl CandleBackend {
    /// A backend with the memory that `host` gives it.
    pub fn new(services: Arc<dyn Services>, host: HostOptions) -> Self {
        CandleBackend { services, host }
    }
}

impl Backend for CandleBackend {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let memory = self.host.memory();
        let threads = self.services.threads();
        Ok(vec![DeviceInfo {
            name: "candle".to_owned(),
            description: format!(
                "{}, {threads} threads; candle {VERSION}, which copies every operand",
                processor()
            ),
            memory_bytes: memory.total_bytes,
            free_bytes: memory.free_bytes,
            instruction_set: instruction_set(),
            shares_host_memory: true,
            exact_memory: false,
            head_chunk_bytes: Some(HEAD_CHUNK_BYTES),
        }])
    }

    fn ops(&self) -> Result<Option<Vec<OpId>>> {
        Ok(Some(TensorKernels::<Candle>::ops()))
    }

    fn open(&self, index: u32) -> Result<Box<dyn Device>> {
        if index != 0 {
            let message = format!("device {index} of backend `candle`: there is only device 0");
            return Err(PluginError::invalid(message));
        }
        let library = Arc::new(Candle::new(self.services.clone()));
        let kernels = TensorKernels::new("candle", library);
        let host = self.host.clone();
        let device = HostDevice::new(Box::new(kernels), self.services.clone(), host);
        Ok(Box::new(device))
    }
}

/// The library with its version, and the widest vectors that its products use.
fn instruction_set() -> String {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        return format!("candle-{VERSION}+avx512");
    } else if std::arch::is_x86_feature_detected!("fma") {
        return format!("candle-{VERSION}+avx2");
    }
    format!("candle-{VERSION}+{}", std::env::consts::ARCH)
}
