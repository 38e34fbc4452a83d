//! The machine as one device, and its opening.

use std::sync::Arc;

use espalier_host_device::{Asked, HostDevice, HostOptions, KernelMaker, Made, Setting};
use espalier_interface::{
    Backend, Device, DeviceInfo, OpId, Options, PluginError, Result, Services,
};
use espalier_kernels::matmul::Isa;

use crate::{machine, op};

/// Bytes of logits in a chunk of the model's head: packing the head's weight for a few rows takes
/// as long as multiplying by it.
const HEAD_CHUNK_BYTES: u64 = 64 << 20;

/// The backend `cpu`.
pub struct CpuBackend {
    services: Arc<dyn Services>,
    host: HostOptions,
    /// The instruction set of products.
    isa: Isa,
}

impl CpuBackend {
    /// A backend that computes on the host's threads.
    pub fn new(services: Arc<dyn Services>) -> Self {
        CpuBackend {
            services,
            host: HostOptions::default(),
            isa: Isa::detect(),
        }
    }

    /// The backend with the folder of mapped files, the device memory and the instruction set that
    /// `options` set, if any.
    ///
    /// # Errors
    /// `INVALID` for a text that is not a size, and for an instruction set that this processor does
    /// not have.
    pub fn with(mut self, options: &Options) -> Result<Self> {
        self.host = self.host.with(options)?;
        let named = |name: &str| options.0.get(name).and_then(|value| value.as_str());
        if let Some(name) = named("isa").filter(|name| !name.is_empty()) {
            self.isa = chosen(name, Isa::available())?;
        }
        Ok(self)
    }
}

/// The instruction set `name` of those that there are.
fn chosen(name: &str, available: &[Isa]) -> Result<Isa> {
    let found = available.iter().find(|isa| isa.name() == name);
    found.copied().ok_or_else(|| {
        let names: Vec<_> = available.iter().map(|isa| isa.name()).collect();
        PluginError::invalid(format!(
            "isa = \"{name}\": this processor has {}; choose one of them, or none for the first",
            names.join(", ")
        ))
    })
}

impl Backend for CpuBackend {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let memory = self.host.memory();
        Ok(vec![DeviceInfo {
            name: "cpu".to_owned(),
            description: machine::description(self.services.threads()),
            memory_bytes: memory.total_bytes,
            free_bytes: memory.free_bytes,
            instruction_set: machine::instruction_set(self.isa).to_owned(),
            shares_host_memory: true,
            exact_memory: true,
            head_chunk_bytes: Some(HEAD_CHUNK_BYTES),
        }])
    }

    fn ops(&self) -> Result<Option<Vec<OpId>>> {
        Ok(Some(op::ids()))
    }

    fn open(&self, index: u32) -> Result<Box<dyn Device>> {
        if index != 0 {
            let message = format!("device {index} of backend `cpu`: there is only device 0");
            return Err(PluginError::invalid(message));
        }
        let maker = Box::new(CpuKernels { isa: self.isa });
        let device = HostDevice::new(maker, self.services.clone(), self.host.clone());
        Ok(Box::new(device))
    }
}

/// The kernels of `cpu`, with products by one instruction set.
pub(crate) struct CpuKernels {
    pub isa: Isa,
}

impl KernelMaker for CpuKernels {
    fn name(&self) -> &str {
        "cpu"
    }

    fn prepare(&self, asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
        let setting = op::Setting {
            decoders: setting.decoders,
            threads: setting.services.threads(),
            isa: self.isa,
        };
        op::prepare(asked, &setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_set_is_chosen_by_name_or_refused_with_those_there_are() {
        let there = [Isa::Avx2, Isa::Portable];
        assert_eq!(chosen("avx2", &there).unwrap(), Isa::Avx2);
        let refused = chosen("avx512+bf16", &there).unwrap_err();
        assert!(
            refused
                .message
                .contains("this processor has avx2, portable"),
            "{refused}"
        );
        let refused = chosen("avx512+amx-bf16", &[Isa::Avx512Bf16, Isa::Avx512]).unwrap_err();
        assert!(
            refused
                .message
                .contains("this processor has avx512+bf16, avx512;"),
            "{refused}"
        );
        let options = |name: &str| {
            let text = format!("{{\"isa\": \"{name}\"}}");
            serde_json::from_str::<Options>(&text).expect("a table")
        };
        for isa in Isa::available() {
            let backend = CpuBackend::new(Arc::new(espalier_interface::Serial));
            let backend = backend.with(&options(isa.name())).unwrap();
            let recorded = &backend.devices().unwrap()[0].instruction_set;
            assert_eq!(recorded, machine::instruction_set(*isa));
        }
        // Models of instructions are no instruction sets to run with.
        for model in [Isa::Bf16Model, Isa::AmxModel] {
            assert!(chosen(model.name(), Isa::available()).is_err());
        }
    }
}
