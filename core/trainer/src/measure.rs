//! A device's own matrix product and its copies from the host, timed: what a step's speed is foretold from and held against.

use std::time::Instant;

use espalier_interface::graph::{Attributes, Dim};
use espalier_interface::{
    BufferRange, DType, Device, KernelRequest, Launch, MemoryKind, Operand, ParamOperand, Stream,
    WeightLayout,
};

use crate::error::{BackendCall, Result};

/// Extent of the square product that is timed.
const SIZE: u64 = 1024;
/// Times it is run; the fastest counts.
const REPEATS: usize = 4;
/// Bytes of a copy that is timed: more than caches hold.
const COPY_BYTES: u64 = 64 << 20;

/// Floating-point operations a second of a dense `linear` in `compute`, the best of a few of 2 SIZE^3 operations each.
///
/// # Errors
/// What the backend reports.
pub fn gemm_rate(device: &dyn Device, compute: DType) -> Result<f64> {
    let matrix = |dim| Operand {
        shape: vec![dim, Dim::Fixed(SIZE)],
        dtype: compute,
    };
    let request = KernelRequest {
        op: "linear".to_owned(),
        version: 1,
        attributes: Attributes::new(),
        inputs: vec![matrix(Dim::Tokens)],
        params: vec![ParamOperand {
            shape: vec![SIZE, SIZE],
            layout: WeightLayout::Dense(compute),
        }],
        outputs: vec![matrix(Dim::Tokens)],
        max_tokens: SIZE,
        max_sequences: 1,
    };
    let prepared = device.prepare(&request, &[None]).during("prepare")?;
    let bytes = SIZE * SIZE * compute.bytes();
    let whole = device
        .alloc(3 * bytes, MemoryKind::DEVICE)
        .during("alloc")?;
    let workspace_bytes = prepared.workspace_bytes.max(1);
    let workspace = device
        .alloc(workspace_bytes, MemoryKind::DEVICE)
        .during("alloc")?;
    let ranges = [0, 1, 2].map(|i| BufferRange {
        buffer: whole,
        offset: i * bytes,
        bytes,
    });
    let fastest = fastest_of(|| {
        let launched = device.launch(&Launch {
            kernel: prepared.kernel,
            stream: Stream(0),
            ranges: &ranges,
            workspace: BufferRange {
                buffer: workspace,
                offset: 0,
                bytes: workspace_bytes,
            },
            tokens: SIZE,
            sequences: 1,
            scalars: &[],
        });
        launched.during("launch")?;
        device.synchronize(Stream(0)).during("synchronize")
    })?;
    device.free(whole).during("free")?;
    device.free(workspace).during("free")?;
    Ok(2.0 * (SIZE * SIZE * SIZE) as f64 / fastest)
}

/// Bytes a second of a copy from host memory to the device's, the best of a few.
///
/// # Errors
/// What the backend reports.
pub fn upload_rate(device: &dyn Device) -> Result<f64> {
    let bytes = vec![1; COPY_BYTES as usize];
    let buffer = device
        .alloc(COPY_BYTES, MemoryKind::DEVICE)
        .during("alloc")?;
    let range = BufferRange {
        buffer,
        offset: 0,
        bytes: COPY_BYTES,
    };
    let fastest = fastest_of(|| {
        let uploaded = device.upload(&bytes, range, Stream(0));
        uploaded.during("upload")?;
        device.synchronize(Stream(0)).during("synchronize")
    })?;
    device.free(buffer).during("free")?;
    Ok(COPY_BYTES as f64 / fastest)
}

/// The least seconds of a few calls.
fn fastest_of(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut fastest = f64::INFINITY;
    for _ in 0..REPEATS {
        let begin = Instant::now();
        call()?;
        fastest = fastest.min(begin.elapsed().as_secs_f64());
    }
    Ok(fastest)
}
