//! Compute backends: devices, memory, streams and kernels.
//!
//! The host owns all memory and calls `prepare` outside the hot path, `launch` in it. Buffers are 64-byte aligned and have a
//! readable tail of 64 bytes. A launch is in order with the others of its stream and may return before it is done.

use std::ptr::NonNull;

use serde::{Deserialize, Serialize};

use super::HostMemory;
use crate::format::Format;
use crate::graph::{Attributes, Dim};
use crate::{DType, PluginError, Result};

/// A device as its backend describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Name, such as `cpu` or `cuda:0`.
    pub name: String,
    /// What it is, for people: the processor's or the card's name.
    pub description: String,
    /// Memory in bytes, and what of it is free now.
    pub memory_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Instruction set or compute capability; it stands in `run.json`.
    pub instruction_set: String,
    /// True where device memory is the host's memory.
    pub shares_host_memory: bool,
    /// True where the backend allocates exactly what is asked for; else sizes are estimates.
    pub exact_memory: bool,
}

/// A buffer of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Buffer(pub u64);

/// A stream of a device; 0 is the compute stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Stream(pub u64);

/// A point in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Event(pub u64);

/// A prepared kernel of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Kernel(pub u64);

/// Bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BufferRange {
    /// The buffer.
    pub buffer: Buffer,
    /// First byte; a multiple of 64 for every operand.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Where a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct MemoryKind(pub u32);

impl MemoryKind {
    /// The device's own memory.
    pub const DEVICE: MemoryKind = MemoryKind(1);
    /// Host memory from which the device copies fast.
    pub const PINNED: MemoryKind = MemoryKind(2);
    /// A file that nothing else sees, mapped: for what is to be used by kernels for a while and is more than the device's
    /// own memory has room for. A backend may lack it.
    pub const MAPPED: MemoryKind = MemoryKind(3);
}

/// An operand of a kernel: a value of a graph with its dtype resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operand {
    /// Extents; symbolic ones are given at launch.
    pub shape: Vec<Dim>,
    /// Element type.
    pub dtype: DType,
}

/// How a weight lies in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightLayout {
    /// One run of elements, row major.
    Dense(DType),
    /// Segments, one buffer range each, in the format's order.
    Packed(Box<Format>),
}

/// A param of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParamOperand {
    /// Shape as in the checkpoint.
    pub shape: Vec<u64>,
    /// How it lies in memory.
    pub layout: WeightLayout,
}

/// What `prepare` is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelRequest {
    /// Op.
    pub op: String,
    /// Version of the op.
    pub version: u32,
    /// Attributes.
    pub attributes: Attributes,
    /// Values read.
    pub inputs: Vec<Operand>,
    /// Params read.
    pub params: Vec<ParamOperand>,
    /// Values made, or accumulated into where the op says so.
    pub outputs: Vec<Operand>,
    /// Largest `T` of any launch.
    pub max_tokens: u64,
    /// Largest `S` of any launch.
    pub max_sequences: u64,
}

/// A prepared kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Prepared {
    /// The kernel.
    pub kernel: Kernel,
    /// Bytes of workspace that each launch needs.
    pub workspace_bytes: u64,
}

/// A packed weight's decoder, for formats that no description covers.
///
/// `decode(context, segments, lens, count, [row_begin, row_end, col_begin, col_end], out)` writes f32, row major, and
/// returns 0, or an [`crate::ErrorCode`]. It may be called from many threads at once.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Decoder {
    /// First argument of `decode`; lives as long as the kernel.
    pub context: *const (),
    /// The function.
    pub decode: extern "C" fn(
        context: *const (),
        segments: *const *const u8,
        lens: *const usize,
        count: usize,
        range: *const u64,
        out: *mut f32,
    ) -> u32,
}

/// What `launch` is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: Kernel,
    /// The stream.
    pub stream: Stream,
    /// Inputs, then each param's ranges (one if dense, one a segment if packed), then outputs.
    pub ranges: &'a [BufferRange],
    /// Workspace of at least the prepared size.
    pub workspace: BufferRange,
    /// `T`.
    pub tokens: u64,
    /// `S`.
    pub sequences: u64,
    /// Scalars in the order that the op states.
    pub scalars: &'a [f64],
}

/// A compute backend.
pub trait Backend: Send + Sync {
    /// The devices that this machine has.
    ///
    /// # Errors
    /// `DEVICE` where a driver or library is missing: the message names it and says how to get it.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Opens device number `index`.
    ///
    /// # Errors
    /// `INVALID` for an index that does not exist, `DEVICE` where it cannot be opened.
    fn open(&self, index: u32) -> Result<Box<dyn Device>>;
}

/// An open device.
pub trait Device: Memory + Streams + Kernels {}

impl<T: Memory + Streams + Kernels> Device for T {}

/// A device's memory.
pub trait Memory: Send + Sync {
    /// A buffer of `bytes` bytes of zeros.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` with the bytes wanted.
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer>;

    /// Gives a buffer back.
    ///
    /// # Errors
    /// `INVALID` for a buffer that does not exist.
    fn free(&self, buffer: Buffer) -> Result<()>;

    /// Copies host bytes to `to`; `from` may be reused on return.
    ///
    /// # Errors
    /// `INVALID` for a range outside its buffer.
    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()>;

    /// Copies `from` to host bytes, which are there on return.
    ///
    /// # Errors
    /// `INVALID` for a range outside its buffer.
    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()>;

    /// Copies between buffers of the device.
    ///
    /// # Errors
    /// `INVALID` for a range outside its buffer or of another length.
    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()>;

    /// The host's address of a range, where the host can write there directly. Valid until the buffer is freed.
    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        let _ = range;
        None
    }

    /// The host's memory as a buffer to copy from and to, and to compute on where the device's memory is the host's.
    /// Freeing it gives it back and unmaps nothing.
    ///
    /// # Errors
    /// `UNSUPPORTED` where the backend takes no memory of the host's; `INVALID` for an address that is not aligned.
    fn import(&self, memory: HostMemory) -> Result<Buffer> {
        let bytes = memory.bytes();
        Err(PluginError::unsupported(format!(
            "this backend takes no memory of the host's ({bytes} bytes were offered)"
        )))
    }
}

/// A device's streams and events.
pub trait Streams: Send + Sync {
    /// A new stream beside the compute stream.
    ///
    /// # Errors
    /// `DEVICE` where the device has no more.
    fn stream(&self) -> Result<Stream>;

    /// An event after everything put on `stream` so far.
    ///
    /// # Errors
    /// `INVALID` for a stream that does not exist.
    fn record(&self, stream: Stream) -> Result<Event>;

    /// Lets what is put on `stream` later wait for `event`.
    ///
    /// # Errors
    /// `INVALID` for a stream or event that does not exist.
    fn wait(&self, stream: Stream, event: Event) -> Result<()>;

    /// Waits until everything put on `stream` so far is done.
    ///
    /// # Errors
    /// `DEVICE` where something put on it failed.
    fn synchronize(&self, stream: Stream) -> Result<()>;
}

/// A device's kernels.
pub trait Kernels: Send + Sync {
    /// Makes a kernel ready. `decoders` has one entry a param, set where its format is [`crate::format::Decoding::Callback`].
    ///
    /// # Errors
    /// `UNSUPPORTED` for an op, version, dtype or layout that the backend does not have, named.
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared>;

    /// Puts a kernel on a stream. Allocates nothing and waits for nothing.
    ///
    /// # Errors
    /// `INVALID` for ranges that do not fit the request.
    fn launch(&self, launch: &Launch<'_>) -> Result<()>;
}
