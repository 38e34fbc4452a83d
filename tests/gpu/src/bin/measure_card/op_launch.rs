//! An op on the card: its operands in the card's memory, and the time of a launch.

use std::time::Instant;

use anyhow::{Context, Result};
use espalier_interface::op::{OpCall, OpDefinition, definition};
use espalier_interface::{
    Buffer, BufferRange, Device, ErrorCode, Launch, MemoryKind, PluginError, Prepared, Stream,
};

use crate::op_shapes::Shaped;
use crate::operand::{Filled, operands};
use crate::setting::told;

/// Alignment of operands in memory.
const ALIGNMENT: u64 = 256;

/// How often a launch is timed.
#[derive(Clone, Copy)]
pub struct Repeats {
    /// Launches before those that count.
    pub uncounted: u32,
    /// Seconds that the launches between two synchronisations take together, about.
    pub secs: f64,
    /// Most of them.
    pub most: u32,
    /// Times that they are timed.
    pub batches: usize,
}

impl Repeats {
    /// Those of a card.
    pub const CARD: Repeats = Repeats {
        uncounted: 3,
        secs: 0.02,
        most: 200,
        batches: 7,
    };
    /// Those that try this program.
    pub const SMALL: Repeats = Repeats {
        uncounted: 0,
        secs: 0.0,
        most: 1,
        batches: 1,
    };
}

/// What is known of a launch.
pub struct Timed {
    /// Median of its seconds.
    pub secs: f64,
    /// Bytes that it moves at least: each operand once, those that are added to twice.
    pub bytes: u64,
    /// Floating-point operations of its products.
    pub flops: u64,
}

/// Memory that the card copies, given back when it goes out of scope.
pub struct Taken<'a> {
    device: &'a dyn Device,
    buffer: Buffer,
    bytes: u64,
}

impl<'a> Taken<'a> {
    fn new(device: &'a dyn Device, bytes: u64) -> Result<Self> {
        Taken::of(device, bytes, MemoryKind::DEVICE)
    }

    /// Takes `bytes` bytes of a kind.
    ///
    /// # Errors
    /// Where there are no more.
    pub fn of(device: &'a dyn Device, bytes: u64, kind: MemoryKind) -> Result<Self> {
        let bytes = bytes.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let buffer = device.alloc(bytes, kind).map_err(told)?;
        Ok(Taken {
            device,
            buffer,
            bytes,
        })
    }

    /// Its bytes from `offset` on.
    pub fn part(&self, offset: u64, bytes: u64) -> BufferRange {
        BufferRange {
            buffer: self.buffer,
            offset,
            bytes,
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // The process ends soon, and its memory with it.
        let _ = self.device.free(self.buffer);
    }
}

/// The time of an op's launch; none where the device does not have it, with its words.
///
/// # Errors
/// Where a call fails.
pub fn time(
    device: &dyn Device,
    of: &Shaped,
    repeats: Repeats,
) -> Result<std::result::Result<Timed, String>> {
    let request = &of.request;
    let defined = definition(&request.op, request.version);
    let defined = defined.with_context(|| format!("there is no op {}", of.name))?;
    request.validate().map_err(told)?;
    let decoders = vec![None; request.params.len()];
    let prepared = match device.prepare(request, &decoders) {
        Err(PluginError { code, message, .. }) if code == ErrorCode::UNSUPPORTED => {
            return Ok(Err(message));
        }
        made => made.map_err(told)?,
    };
    let operands = operands(of, defined);
    let timed = launched(device, of, &operands, prepared, repeats);
    device.release(prepared.kernel).map_err(told)?;
    Ok(Ok(Timed {
        secs: timed?,
        bytes: operands.iter().map(|one| one.bytes * one.moved).sum(),
        flops: flops(of, defined),
    }))
}

/// Operations of a launch; a token attends to itself and those before it.
fn flops(of: &Shaped, defined: &'static OpDefinition) -> u64 {
    let call = OpCall::of_request(defined, &of.request);
    let cost = (defined.flops)(&call);
    let pairs = of.tokens * (of.sequence + 1) / 2;
    cost.per_launch + cost.per_token * of.tokens + cost.per_pair * pairs
}

/// Median of the seconds of a launch.
fn launched(
    device: &dyn Device,
    of: &Shaped,
    operands: &[Filled],
    prepared: Prepared,
    repeats: Repeats,
) -> Result<f64> {
    let place = |bytes: u64| bytes.next_multiple_of(ALIGNMENT);
    let memory = Taken::new(device, operands.iter().map(|one| place(one.bytes)).sum())?;
    let workspace = Taken::new(device, prepared.workspace_bytes)?;
    let mut ranges = Vec::new();
    let mut offset = 0;
    for operand in operands {
        let range = memory.part(offset, operand.bytes);
        fill(device, operand, range)?;
        ranges.push(range);
        offset += place(operand.bytes);
    }
    let launch = Launch {
        kernel: prepared.kernel,
        stream: Stream(0),
        ranges: &ranges,
        workspace: workspace.part(0, prepared.workspace_bytes),
        tokens: of.tokens,
        sequences: of.tokens.div_ceil(of.sequence.max(1)),
        scalars: &of.scalars,
    };
    times(device, repeats, || device.launch(&launch).map_err(told))
}

/// Median of the seconds of a call that puts work on the compute stream.
///
/// # Errors
/// Where a call fails.
pub fn times(device: &dyn Device, repeats: Repeats, call: impl Fn() -> Result<()>) -> Result<f64> {
    let of = |count: u32| -> Result<f64> {
        let begin = Instant::now();
        for _ in 0..count {
            call()?;
        }
        device.synchronize(Stream(0)).map_err(told)?;
        Ok(begin.elapsed().as_secs_f64() / f64::from(count.max(1)))
    };
    of(repeats.uncounted)?;
    let once = of(1)?;
    let count = (repeats.secs / once.max(1e-9)).ceil() as u32;
    let count = count.clamp(1, repeats.most);
    let mut secs = Vec::new();
    for _ in 0..repeats.batches {
        secs.push(of(count)?);
    }
    secs.sort_by(f64::total_cmp);
    Ok(secs[secs.len() / 2])
}

/// Puts what was drawn into the operand, again and again.
fn fill(device: &dyn Device, operand: &Filled, to: BufferRange) -> Result<()> {
    let drawn = operand.drawn.len() as u64;
    if drawn == 0 {
        return Ok(());
    }
    let part = |offset: u64, bytes: u64| BufferRange {
        offset: to.offset + offset,
        bytes,
        ..to
    };
    device
        .upload(&operand.drawn, part(0, drawn), Stream(0))
        .map_err(told)?;
    let mut held = drawn;
    while held < operand.bytes {
        let more = held.min(operand.bytes - held);
        device
            .copy(part(0, more), part(held, more), Stream(0))
            .map_err(told)?;
        held += more;
    }
    device.synchronize(Stream(0)).map_err(told)
}

/// Bytes that a copy within the card's memory reads and writes in a second, of `bytes` bytes.
///
/// # Errors
/// Where a call fails.
pub fn copied_per_sec(device: &dyn Device, bytes: u64, repeats: Repeats) -> Result<f64> {
    let [from, to] = [Taken::new(device, bytes)?, Taken::new(device, bytes)?];
    let bytes = from.bytes;
    let [source, target] = [from.part(0, bytes), to.part(0, bytes)];
    let copy = || device.copy(source, target, Stream(0)).map_err(told);
    let secs = times(device, repeats, copy)?;
    Ok(2.0 * bytes as f64 / secs)
}
