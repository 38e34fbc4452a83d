//! Products with a packed weight of a plan, timed -> bytes per second of decoding.

use std::iter;

use espalier_compile::arena::aligned;
use espalier_compile::params::Param;
use espalier_interface::format::{Decoding, Format, SegmentSpec};
use espalier_interface::{
    Buffer, BufferRange, DType, Device, ErrorCode, KernelRequest, MemoryKind, Operand,
    ParamOperand, WeightLayout,
};
use espalier_plan::plan::RunPlan;

use super::timed_kernel::TimedKernel;
use super::zero;
use crate::error::{BackendCall, Result};

/// Rows of a product: few, so that decoding takes most of the time. A product of one row may use
/// other kernels than training does.
const ROWS: u64 = 16;
/// Launches between two waits for the device.
const LAUNCHES: usize = 4;
/// Timed runs of these launches; the fastest counts.
const REPEATS: usize = 4;
/// Least elements of the weight on a device that shares the host's memory.
const LEAST_ELEMENTS: u64 = 1 << 16;
/// The products of a pass forward and back.
const PRODUCTS: [&str; 2] = ["linear", "linear_input_backward"];

/// The bytes that the definitions of both ops count for decoding, over their time without that of
/// the multiplying at `gemm_rate`. The weight is a packed one of `plan`. None where there is none
/// whose format describes its decoding, on a backend without these ops, and where memory is short.
///
/// # Errors
/// `Error::Plugin`: a call to the backend failed.
pub(super) fn decode_rate(
    device: &dyn Device,
    plan: &RunPlan,
    gemm_rate: f64,
) -> Result<Option<f64>> {
    if !PRODUCTS.iter().all(|op| plan.ops.has(op, 1)) {
        return Ok(None);
    }
    let Some(format) = timed_format(&plan.params, plan.device_info.shares_host_memory) else {
        return Ok(None);
    };
    let (mut bytes, mut secs) = (0, 0.0);
    for op in PRODUCTS {
        let request = request(op, format, plan.dtypes.compute);
        let multiplying = (ROWS * request.flops().per_token) as f64 / gemm_rate;
        let Some(whole) = product_secs(device, &request, format)? else {
            return Ok(None);
        };
        // Where the machine was slower when `gemm_rate` was measured, a tenth remains.
        secs += (whole - multiplying).max(0.1 * whole);
        bytes += request.traffic().decoded_per_launch;
    }
    Ok(Some(bytes as f64 / secs))
}

/// The largest format, as launches of a device of its own have a price; the smallest with enough
/// elements where the device `shares_host_memory`, if there is one.
fn timed_format(params: &[Param], shares_host_memory: bool) -> Option<&Format> {
    let formats = params.iter().filter_map(|param| match &param.layout {
        WeightLayout::Packed(format) if format.decoding != Decoding::Callback => Some(&**format),
        _ => None,
    });
    let elements = |format: &&Format| format.shape.iter().product::<u64>();
    let enough = formats
        .clone()
        .filter(|format| shares_host_memory && elements(format) >= LEAST_ELEMENTS);
    enough
        .min_by_key(elements)
        .or_else(|| formats.max_by_key(elements))
}

/// The widths of the input and the output of one of [`PRODUCTS`] with a weight `[N, M]`.
fn widths(op: &str, format: &Format) -> [u64; 2] {
    let [n, m] = format.shape;
    if op == PRODUCTS[0] { [m, n] } else { [n, m] }
}

/// One of [`PRODUCTS`].
fn request(op: &str, format: &Format, compute: DType) -> KernelRequest {
    let [from, to] = widths(op, format);
    KernelRequest::new(op)
        .inputs(vec![Operand::per_token(from, compute)])
        .params(vec![ParamOperand {
            shape: format.shape.to_vec(),
            layout: WeightLayout::Packed(Box::new(format.clone())),
        }])
        .outputs(vec![Operand::per_token(to, compute)])
        .limits(ROWS, 1)
}

/// Seconds of a product of zeros in the fastest run; none where the device has no memory for it.
fn product_secs(
    device: &dyn Device,
    request: &KernelRequest,
    format: &Format,
) -> Result<Option<f64>> {
    let timed = TimedKernel::new(device, request)?;
    let value = request.inputs[0].dtype.bytes();
    let [x, y] = widths(&request.op, format).map(|width| ROWS * width * value);
    let parts: Vec<u64> = iter::once(x)
        .chain(format.segments.iter().map(SegmentSpec::bytes))
        .chain([y, timed.workspace_bytes])
        .collect();
    let bytes = parts.iter().copied().map(aligned).sum();
    let buffer = match device.alloc(bytes, MemoryKind::DEVICE) {
        Err(error) if error.code == ErrorCode::OUT_OF_MEMORY => return Ok(None),
        made => made.during("alloc")?,
    };
    let secs = secs_of_zeros(device, &timed, &ranges(buffer, &parts));
    device.free(buffer).during("free")?;
    secs.map(Some)
}

/// The parts of a buffer, one behind the other.
fn ranges(buffer: Buffer, parts: &[u64]) -> Vec<BufferRange> {
    let mut offset = 0;
    let of_part = |&bytes: &u64| {
        let range = BufferRange {
            buffer,
            offset,
            bytes,
        };
        offset += aligned(bytes);
        range
    };
    parts.iter().map(of_part).collect()
}

/// Seconds of a launch with operands of zeros and, last, a workspace. The zeros are written: pages
/// that were never written may all be one.
fn secs_of_zeros(
    device: &dyn Device,
    timed: &TimedKernel<'_>,
    ranges: &[BufferRange],
) -> Result<f64> {
    ranges.iter().try_for_each(|range| zero(device, *range))?;
    let (workspace, operands) = ranges.split_last().expect("the workspace is the last");
    timed.secs((operands, *workspace), ROWS, [REPEATS, LAUNCHES])
}
