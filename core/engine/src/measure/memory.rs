//! A device's `swiglu`, timed -> bytes per second of kernels that are not matrix products. Like
//! most of them, it does little work per value.

use espalier_interface::graph::{Attributes, Dim};
use espalier_interface::{
    BufferRange, DType, Device, KernelRequest, Launch, MemoryKind, Operand, Stream,
};

use super::fastest_of;
use crate::error::{BackendCall, Result};

/// Rows and columns of the values.
const SIZE: u64 = 1024;
/// Number of runs; the fastest counts.
const REPEATS: usize = 16;

/// Bytes per second that a `swiglu` in `compute` reads and writes, the best of a few runs.
///
/// # Errors
/// `Error::Plugin`: a call to the backend failed.
pub fn memory_rate(device: &dyn Device, compute: DType) -> Result<f64> {
    let value = Operand {
        shape: vec![Dim::Tokens, Dim::Fixed(SIZE)],
        dtype: compute,
    };
    let request = KernelRequest {
        op: "swiglu".to_owned(),
        version: 1,
        attributes: Attributes::new(),
        inputs: vec![value.clone(), value.clone()],
        params: Vec::new(),
        outputs: vec![value],
        max_tokens: SIZE,
        max_sequences: 1,
    };
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
