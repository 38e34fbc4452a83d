//! Elementwise ops and decoding, timed -> bytes per second of kernels that are not matrix products.

use espalier_interface::{
    Buffer, BufferRange, DType, Device, ErrorCode, KernelRequest, MemoryKind, Operand,
};
use espalier_plan::plan::{KernelRates, RunPlan};

use super::decode_rate::decode_rate;
use super::timed_kernel::TimedKernel;
use crate::error::{BackendCall, Result};

/// Columns of the values.
const WIDTH: u64 = 1024;
/// Rows for the rate of memory: more bytes than caches hold. Fewer where memory is short.
const MEMORY_ROWS: [u64; 3] = [8192, 1024, 128];
/// Rows for the rate of elementwise ops: as many as a large micro-batch has.
const ELEMENTWISE_ROWS: [u64; 2] = [1024, 128];
/// Bytes that an op has to read and write in all its runs; the fastest run counts.
const TIMED_BYTES: u64 = 384 << 20;
/// Most runs.
const MOST_REPEATS: u64 = 16;

/// The rates of `plan`, each the best of a few runs: `add` does no more than memory allows, and
/// `swiglu` has an exponential for each value. `mul` stands in for it on a backend without it.
/// Without a packed weight to time decoding with, its rate is that of `swiglu`.
///
/// # Errors
/// `Error::Plugin`: a call to the backend failed; it has no memory for the fewest rows.
pub fn kernel_rates(device: &dyn Device, plan: &RunPlan, gemm_rate: f64) -> Result<KernelRates> {
    let compute = plan.dtypes.compute;
    let costly = if plan.ops.has("swiglu", 1) {
        "swiglu"
    } else {
        "mul"
    };
    let elementwise = rate(device, costly, compute, &ELEMENTWISE_ROWS)?;
    Ok(KernelRates {
        memory: rate(device, "add", compute, &MEMORY_ROWS)?,
        elementwise,
        decoding: decode_rate(device, plan, gemm_rate)?.unwrap_or(elementwise),
    })
}

/// Bytes per second that `op` reads and writes, on the most rows that the device has memory for.
fn rate(device: &dyn Device, op: &str, compute: DType, rows: &[u64]) -> Result<f64> {
    let mut refusal = None;
    for &rows in rows {
        let timed = Timed::new(device, op, compute, rows)?;
        match device.alloc(timed.bytes(), MemoryKind::DEVICE) {
            Ok(buffer) => {
                let rate = timed.rate(buffer);
                device.free(buffer).during("free")?;
                return rate;
            }
            Err(error) if error.code == ErrorCode::OUT_OF_MEMORY => refusal = Some(error),
            Err(error) => return Err(error).during("alloc"),
        }
    }
    Err(refusal.expect("there is a number of rows")).during("alloc")
}

/// A prepared op of two inputs and one output of a shape.
struct Timed<'a> {
    timed: TimedKernel<'a>,
    rows: u64,
    /// Bytes of each operand.
    operand: u64,
}

impl<'a> Timed<'a> {
    fn new(device: &'a dyn Device, op: &str, compute: DType, rows: u64) -> Result<Self> {
        let value = Operand::per_token(WIDTH, compute);
        let request = KernelRequest::new(op)
            .inputs(vec![value.clone(), value.clone()])
            .outputs(vec![value])
            .limits(rows, 1);
        Ok(Timed {
            timed: TimedKernel::new(device, &request)?,
            rows,
            operand: rows * WIDTH * compute.bytes(),
        })
    }

    /// Bytes of the operands and the workspace, which follows them.
    fn bytes(&self) -> u64 {
        3 * self.operand + self.timed.workspace_bytes
    }

    fn rate(&self, buffer: Buffer) -> Result<f64> {
        let range = |index: u64, bytes: u64| BufferRange {
            buffer,
            offset: index * self.operand,
            bytes,
        };
        let ranges = [0, 1, 2].map(|index| range(index, self.operand));
        let repeats = (TIMED_BYTES / (3 * self.operand)).clamp(4, MOST_REPEATS);
        let workspace = range(3, self.timed.workspace_bytes);
        let runs = [repeats as usize, 1];
        let fastest = self.timed.secs((&ranges, workspace), self.rows, runs)?;
        Ok(3.0 * self.operand as f64 / fastest)
    }
}
