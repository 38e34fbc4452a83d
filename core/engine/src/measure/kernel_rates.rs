//! Elementwise ops, timed -> bytes per second of kernels that are not matrix products.

use espalier_interface::{
    BufferRange, DType, Device, KernelRequest, Launch, MemoryKind, Operand, Stream,
};
use espalier_plan::plan::KernelRates;

use super::fastest_of;
use crate::error::{BackendCall, Result};

/// Rows and columns of the values.
const SIZE: u64 = 1024;
/// Number of runs; the fastest counts.
const REPEATS: usize = 16;

/// The rates in `compute`, each the best of a few runs: `add` does no more than memory allows,
/// `swiglu` has an exponential for each value.
///
/// # Errors
/// `Error::Plugin`: a call to the backend failed.
pub fn kernel_rates(device: &dyn Device, compute: DType) -> Result<KernelRates> {
    Ok(KernelRates {
        memory: rate(device, "add", compute)?,
        elementwise: rate(device, "swiglu", compute)?,
    })
}

/// Bytes per second that an op of two inputs and one output of a shape reads and writes.
fn rate(device: &dyn Device, op: &str, compute: DType) -> Result<f64> {
    let value = Operand::per_token(SIZE, compute);
    let request = KernelRequest::new(op)
        .inputs(vec![value.clone(), value.clone()])
        .outputs(vec![value])
        .limits(SIZE, 1);
    let prepared = device.prepare(&request, &[]).during("prepare")?;
    let bytes = SIZE * SIZE * compute.bytes();
    let whole = device
        .alloc(3 * bytes, MemoryKind::DEVICE)
        .during("alloc")?;
    let workspace_bytes = prepared.workspace_bytes.max(1);
    let workspace = device
        .alloc(workspace_bytes, MemoryKind::DEVICE)
        .during("alloc")?;
    let ranges = [0, 1, 2].map(|at| BufferRange {
        buffer: whole,
        offset: at * bytes,
        bytes,
    });
    let fastest = fastest_of(REPEATS, || {
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
    Ok(3.0 * bytes as f64 / fastest)
}
