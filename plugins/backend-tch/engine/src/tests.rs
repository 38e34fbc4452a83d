//! The device over a driver without a card: the kit of a backend, and what each call asks of the
//! driver.
#![allow(unsafe_code)] // Memory of a driver without a card.

mod calls;
mod separate;

use std::sync::Arc;

use espalier_conformance::{Outcome, Subject, Suite, backend};
use espalier_interface::graph::Attributes;
use espalier_interface::{
    Backend, Buffer, BufferRange, DType, Device, DeviceInfo, Instance, Kernel, KernelRequest,
    Kernels, Launch, Operand, Options, PluginError, Result, Role, Serial, Services, Stream,
};
use espalier_tensor_ops::TensorKernels;

use espalier_driver_device::DriverDevice;
use crate::torch::Torch;
use separate::{Separate, Watch};

/// A device whose kernels are those of a card, computed by libtorch on the processors.
fn device(device_memory: Option<u64>) -> (DriverDevice<Separate>, Watch) {
    made(Arc::new(Serial), device_memory)
}

fn made(
    services: Arc<dyn Services>,
    device_memory: Option<u64>,
) -> (DriverDevice<Separate>, Watch) {
    let watch = Watch::default();
    // A card sorts what is added at one index. The processors do it in order on one thread alone.
    let torch = Torch::on_card(tch::Device::Cpu, 1, true);
    let maker = Box::new(TensorKernels::new("tch", Arc::new(torch)));
    let driver = Separate(watch.clone());
    let device = DriverDevice::new(driver, maker, services, device_memory);
    (device.expect("streams have no bound"), watch)
}

/// The backend `tch` as it would be with one card.
struct OneCard(Arc<dyn Services>);

impl Backend for OneCard {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(vec![DeviceInfo {
            name: "card:0".to_owned(),
            description: "a driver without a card".to_owned(),
            memory_bytes: 1 << 30,
            free_bytes: 1 << 30,
            instruction_set: "none".to_owned(),
            shares_host_memory: false,
            exact_memory: false,
            head_chunk_bytes: None,
        }])
    }

    fn open(&self, index: u32) -> Result<Box<dyn Device>> {
        match index {
            0 => Ok(Box::new(made(self.0.clone(), None).0)),
            _ => Err(PluginError::invalid("there is one device")),
        }
    }
}

const ONE_CARD: espalier_interface::Component = espalier_interface::Component {
    name: "one-card",
    role: Role::BACKEND,
    doc: "libtorch on the processors, in memory that the host is not given",
    options: &[],
    capabilities: &[("compute", "bf16,f32")],
    create: |_: &Options, services| Ok(Instance::Backend(Box::new(OneCard(services)))),
};

#[test]
fn the_kit_of_a_backend_passes_and_skips_nothing() {
    let mut suite = Suite::new(ONE_CARD.name);
    backend(&Subject::<dyn Backend>::backend(&ONE_CARD), &mut suite);
    let report = suite.finish();
    report.assert_passed();
    let skipped: Vec<_> = report
        .checks
        .iter()
        .filter(|check| matches!(check.outcome, Outcome::Skipped(_)))
        .collect();
    assert!(skipped.is_empty(), "{skipped:?}");
    assert!(report.checks.len() > 70, "{} checks", report.checks.len());
}

/// The first `bytes` bytes of a buffer.
fn range(buffer: Buffer, bytes: u64) -> BufferRange {
    BufferRange {
        buffer,
        offset: 0,
        bytes,
    }
}

/// A kernel that sets 16 elements of f32 to 1.
fn ones(device: &DriverDevice<Separate>) -> Kernel {
    let request = KernelRequest::new("init")
        .attributes(Attributes::new().with("kind", "ones"))
        .outputs(vec![Operand::flat(16, DType::F32)]);
    device.prepare(&request, &[]).expect("a known op").kernel
}

fn launch(
    device: &DriverDevice<Separate>,
    kernel: Kernel,
    to: Buffer,
    stream: Stream,
) -> Result<()> {
    device.launch(&Launch {
        kernel,
        stream,
        ranges: &[range(to, 64)],
        workspace: range(to, 0),
        tokens: 0,
        sequences: 0,
        scalars: &[0.0; 3],
    })
}
