//! A device's own matrix product, timed: the rate against which a step's speed is held.

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
    let mut fastest = f64::INFINITY;
    for _ in 0..REPEATS {
        let begin = Instant::now();
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
        device.synchronize(Stream(0)).during("synchronize")?;
        fastest = fastest.min(begin.elapsed().as_secs_f64());
    }
    device.free(whole).during("free")?;
    device.free(workspace).during("free")?;
    Ok(2.0 * (SIZE * SIZE * SIZE) as f64 / fastest)
}
