//! Timings of a device's matrix product and of copies from the host. A step's speed is predicted
//! from them and compared with them.

mod decode_rate;
mod kernel_rates;
mod peak;
mod timed_kernel;

use std::time::Instant;

use espalier_compile::arena::aligned;
use espalier_interface::{
    BufferRange, DType, Device, ErrorCode, KernelRequest, MemoryKind, Operand, ParamOperand,
    Stream, WeightLayout,
};

use crate::error::{BackendCall, Result};

pub use kernel_rates::kernel_rates;
pub use peak::{Cause, PeakRate, Peaks};
use timed_kernel::TimedKernel;

/// Extents of the square products, each timed as long as those before it were over too soon.
const SIZES: [u64; 6] = [256, 512, 1024, 2048, 4096, 8192];
/// Seconds of a product that is large enough: what is around it does not count.
const ENOUGH_SECS: f64 = 2e-3;
/// Number of runs; the fastest counts.
const REPEATS: usize = 4;
/// Divisor of the rows of a short product, and its number of runs. On a busy machine some short
/// runs are not interrupted.
const SHORT: (u64, usize) = (8, 16);
/// How a rate is measured, in words.
pub const HOW: &str = "the best of 4 products of square matrices, grown until one takes 2 ms, and 16 of an eighth of the rows";
/// Bytes of a copy that is timed: more than caches hold.
const COPY_BYTES: u64 = 64 << 20;
/// Bytes that are zeroed at once.
const ZEROS: usize = 1 << 20;

/// A square product that is prepared, and what it needs beside its kernel.
struct Product<'a> {
    size: u64,
    device: &'a dyn Device,
    timed: TimedKernel<'a>,
    bytes: u64,
}

impl<'a> Product<'a> {
    fn new(device: &'a dyn Device, compute: DType, size: u64) -> Result<Self> {
        let request = KernelRequest::new("linear")
            .inputs(vec![Operand::per_token(size, compute)])
            .params(vec![ParamOperand {
                shape: vec![size, size],
                layout: WeightLayout::Dense(compute),
            }])
            .outputs(vec![Operand::per_token(size, compute)])
            .limits(size, 1);
        Ok(Product {
            size,
            device,
            timed: TimedKernel::new(device, &request)?,
            bytes: size * size * compute.bytes(),
        })
    }

    /// Bytes of its three matrices and its workspace.
    fn room(&self) -> u64 {
        aligned(3 * self.bytes) + self.timed.workspace_bytes
    }

    /// Operations per second in `room`, the best of a few runs, and whether the product is large
    /// enough.
    fn rate(&self, room: BufferRange) -> Result<(f64, bool)> {
        let range = |offset: u64, bytes: u64| BufferRange {
            offset: room.offset + offset,
            bytes,
            ..room
        };
        let matrices = range(0, 3 * self.bytes);
        zero(self.device, matrices)?;
        let workspace = range(aligned(3 * self.bytes), self.timed.workspace_bytes);
        let fastest = |part: u64, times: usize| -> Result<f64> {
            let (rows, bytes) = (self.size / part, self.bytes / part);
            let ranges = [(0, bytes), (1, self.bytes), (2, bytes)];
            let ranges = ranges.map(|(at, bytes)| range(at * self.bytes, bytes));
            self.timed.secs((&ranges, workspace), rows, [times, 1])
        };
        let whole = fastest(1, REPEATS)?;
        let short = SHORT.0 as f64 * fastest(SHORT.0, SHORT.1)?;
        let operations = 2.0 * self.size.pow(3) as f64;
        Ok((operations / whole.min(short), whole >= ENOUGH_SECS))
    }
}

/// Floating-point operations per second of a dense `linear` in `compute`: the best of a few runs of
/// square products. They grow until one takes long enough, or the device has no memory for more.
///
/// # Errors
/// `Error::Plugin`: a call to the backend failed; it has no memory for the smallest size.
pub fn gemm_rate(device: &dyn Device, compute: DType) -> Result<f64> {
    let mut refusal = None;
    let best = best_rate((device, compute), u64::MAX, |product| {
        let bytes = product.room();
        let buffer = match device.alloc(bytes, MemoryKind::DEVICE) {
            Err(error) if error.code == ErrorCode::OUT_OF_MEMORY => {
                refusal = Some(error);
                return Ok(None);
            }
            made => made.during("alloc")?,
        };
        let room = BufferRange {
            buffer,
            offset: 0,
            bytes,
        };
        let rate = product.rate(room);
        device.free(buffer).during("free")?;
        rate.map(Some)
    })?;
    match (best, refusal) {
        (Some(best), _) => Ok(best),
        (None, refusal) => Err(refusal.expect("the smallest size was refused")).during("alloc"),
    }
}

/// As [`gemm_rate`], for products that fit into `room`; none where none fits. The content of `room`
/// is overwritten.
///
/// # Errors
/// As [`gemm_rate`].
pub fn gemm_rate_within(
    device: &dyn Device,
    compute: DType,
    room: BufferRange,
) -> Result<Option<f64>> {
    best_rate((device, compute), room.bytes, |product| {
        let fits = product.room() <= room.bytes;
        fits.then(|| product.rate(room)).transpose()
    })
}

/// The best rate of products that grow until one is large enough, its matrices have `bytes` or
/// more, or `timed` has no room for it.
fn best_rate(
    (device, compute): (&dyn Device, DType),
    bytes: u64,
    mut timed: impl FnMut(&Product<'_>) -> Result<Option<(f64, bool)>>,
) -> Result<Option<f64>> {
    let mut best: Option<f64> = None;
    for size in SIZES {
        if 3 * size * size * compute.bytes() >= bytes {
            break;
        }
        let Some((rate, is_enough)) = timed(&Product::new(device, compute, size)?)? else {
            break;
        };
        best = Some(best.map_or(rate, |best| best.max(rate)));
        if is_enough {
            break;
        }
    }
    Ok(best)
}

/// The sum of the rates of a process's devices, which run at the same time.
///
/// # Errors
/// As [`gemm_rate`].
pub fn gemm_rate_of_all(devices: &[&dyn Device], compute: DType) -> Result<f64> {
    if let [one] = devices {
        return gemm_rate(*one, compute);
    }
    std::thread::scope(|scope| {
        let ranks: Vec<_> = devices
            .iter()
            .map(|device| scope.spawn(move || gemm_rate(*device, compute)))
            .collect();
        let joined = ranks.into_iter().map(|rank| match rank.join() {
            Ok(rate) => rate,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.sum()
    })
}

fn zero(device: &dyn Device, range: BufferRange) -> Result<()> {
    let zeros = vec![0; ZEROS];
    for offset in (0..range.bytes).step_by(ZEROS) {
        let bytes = (range.bytes - offset).min(ZEROS as u64);
        let part = BufferRange {
            offset: range.offset + offset,
            bytes,
            ..range
        };
        let uploaded = device.upload(&zeros[..bytes as usize], part, Stream(0));
        uploaded.during("upload")?;
    }
    device.synchronize(Stream(0)).during("synchronize")
}

/// Bytes per second of a copy from pinned host memory to the device's, the best of a few runs; from
/// ordinary memory where no more can be pinned.
///
/// # Errors
/// `Error::Plugin`: a call to the backend failed.
pub fn upload_rate(device: &dyn Device) -> Result<f64> {
    let buffer = device
        .alloc(COPY_BYTES, MemoryKind::DEVICE)
        .during("alloc")?;
    let whole = |buffer| BufferRange {
        buffer,
        offset: 0,
        bytes: COPY_BYTES,
    };
    let to = whole(buffer);
    let timed = |put: &dyn Fn() -> Result<()>| {
        fastest_of(REPEATS, || {
            put()?;
            device.synchronize(Stream(0)).during("synchronize")
        })
    };
    let fastest = if let Ok(pinned) = device.alloc(COPY_BYTES, MemoryKind::PINNED) {
        let from = whole(pinned);
        zero(device, from)?;
        let fastest = timed(&|| device.copy(from, to, Stream(0)).during("copy"));
        device.free(pinned).during("free")?;
        fastest?
    } else {
        let bytes = vec![1; COPY_BYTES as usize];
        timed(&|| device.upload(&bytes, to, Stream(0)).during("upload"))?
    };
    device.free(buffer).during("free")?;
    Ok(COPY_BYTES as f64 / fastest)
}

/// The shortest time of `times` calls, in seconds.
fn fastest_of(times: usize, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut fastest = f64::INFINITY;
    for _ in 0..times {
        let begin = Instant::now();
        call()?;
        fastest = fastest.min(begin.elapsed().as_secs_f64());
    }
    Ok(fastest)
}
