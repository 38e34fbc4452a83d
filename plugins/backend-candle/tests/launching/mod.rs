//! A device of candle's, and launches on it.

use std::sync::Arc;

use espalier_backend_candle::CandleBackend;
use espalier_host_device::HostOptions;
use espalier_interface::{
    Backend, BufferRange, DType, Device, KernelRequest, Launch, MemoryKind, Operand, ParamOperand,
    Result, Services, Stream, WeightLayout,
};

/// A device with that much memory, if there is a bound.
pub fn device(services: Arc<dyn Services>, device_memory: Option<u64>) -> Box<dyn Device> {
    let host = HostOptions {
        device_memory,
        ..HostOptions::default()
    };
    let backend = CandleBackend::new(services, host);
    backend.open(0).expect("the machine")
}

/// Launches a request on operands of these bytes, one range each.
pub fn launch(device: &dyn Device, request: &KernelRequest, operands: &[&[u8]]) -> Result<()> {
    let kernel = device
        .prepare(request, &vec![None; request.params.len()])?
        .kernel;
    let mut ranges = Vec::new();
    for bytes in operands {
        let buffer = device.alloc(bytes.len() as u64, MemoryKind::DEVICE)?;
        let range = BufferRange {
            buffer,
            offset: 0,
            bytes: bytes.len() as u64,
        };
        device.upload(bytes, range, Stream(0))?;
        ranges.push(range);
    }
    device.launch(&Launch {
        kernel,
        stream: Stream(0),
        ranges: &ranges,
        workspace: ranges[0],
        tokens: request.max_tokens,
        sequences: request.max_sequences,
        scalars: &[],
    })
}

/// A product of 32 x 64 with 64 x 64 in f32.
pub fn product() -> KernelRequest {
    let weight = ParamOperand {
        shape: vec![64, 64],
        layout: WeightLayout::Dense(DType::F32),
    };
    KernelRequest::new("linear")
        .inputs(vec![Operand::per_token(64, DType::F32)])
        .params(vec![weight])
        .outputs(vec![Operand::per_token(64, DType::F32)])
        .limits(32, 1)
}

/// Zeros for the operands of [`product`].
pub const OPERANDS: [&[u8]; 3] = [&[0; 8192], &[0; 16_384], &[0; 8192]];
