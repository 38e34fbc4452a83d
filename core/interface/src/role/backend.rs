//! Compute backends: devices, memory, streams and kernels.
//!
//! The host owns all memory. It calls `prepare` while it sets up and `launch` in every step.
//! Buffers are 64-byte aligned and have 64 more readable bytes at the end. Launches on one stream
//! run in order and may return before they are done.

use std::ptr::NonNull;

use serde::{Deserialize, Serialize};

use super::{HostMemory, KernelRequest, OpId};
use crate::{PluginError, Result};

/// A device as its backend describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Name, such as `cpu` or `cuda:0`.
    pub name: String,
    /// Description for people: the name of the processor or graphics card.
    pub description: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Bytes of it that are free now.
    pub free_bytes: u64,
    /// Instruction set or compute capability; it is recorded in `run.json`.
    pub instruction_set: String,
    /// True where device memory is the host's memory.
    pub shares_host_memory: bool,
    /// True where the backend allocates exactly the bytes asked for; else planned sizes are
    /// estimates.
    pub exact_memory: bool,
    /// Bytes of logits in a chunk of the model's head. Each chunk reads the head's weight once
    /// forward and once backward, and has its logits and their gradients in device memory. `None`
    /// for 16 MiB, also from backends before 0.7. The sum of the head's weight gradient goes from
    /// chunk to chunk, so that its rounding depends on this number: give all devices of one
    /// instruction set the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_chunk_bytes: Option<u64>,
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

/// A range of a buffer.
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

/// The kind of memory of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct MemoryKind(pub u32);

impl MemoryKind {
    /// The device's own memory.
    pub const DEVICE: MemoryKind = MemoryKind(1);
    /// Host memory that the device copies fast.
    pub const PINNED: MemoryKind = MemoryKind(2);
    /// A mapped private file, for data that kernels use for a while and that does not fit into the
    /// device's own memory. A backend may not have it.
    pub const MAPPED: MemoryKind = MemoryKind(3);
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

/// A decoder of a packed weight, for formats that no description covers.
///
/// `decode(context, segments, lens, count, [row_begin, row_end, col_begin, col_end], out)` writes
/// f32, row major, and returns 0, or an [`crate::ErrorCode`]. It may be called from many threads at
/// once.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Decoder {
    /// First argument of `decode`; valid as long as the kernel.
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

// SAFETY: `decode` may be called with `context` from many threads at once.
#[allow(unsafe_code)]
unsafe impl Send for Decoder {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Decoder {}

/// The arguments of [`Kernels::launch`].
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: Kernel,
    /// The stream.
    pub stream: Stream,
    /// Inputs, then the ranges of each param (one if dense, one per segment if packed), then
    /// outputs.
    pub ranges: &'a [BufferRange],
    /// Workspace of at least the prepared size.
    pub workspace: BufferRange,
    /// `T`.
    pub tokens: u64,
    /// `S`.
    pub sequences: u64,
    /// Scalars in the op's order.
    pub scalars: &'a [f64],
}

/// A compute backend.
pub trait Backend: Send + Sync {
    /// The devices of this machine.
    ///
    /// # Errors
    /// `DEVICE` where a driver or library is missing; the message names it and says how to get it.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// The ops that its devices have, or nothing: then it is taken to have all ops of version 1. An
    /// op that is not listed runs by its decomposition into primitives that are, if it has one.
    ///
    /// # Errors
    /// `DEVICE` where it cannot say.
    fn ops(&self) -> Result<Option<Vec<OpId>>> {
        Ok(None)
    }

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
    /// Allocates a buffer of `bytes` bytes of zeros.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` with the bytes asked for.
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer>;

    /// Frees a buffer.
    ///
    /// # Errors
    /// `INVALID` for a buffer that does not exist.
    fn free(&self, buffer: Buffer) -> Result<()>;

    /// Copies host bytes to `to`; `from` may be reused on return.
    ///
    /// # Errors
    /// `INVALID` for a range outside its buffer.
    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()>;

    /// Copies `from` to host bytes; the copy is complete on return.
    ///
    /// # Errors
    /// `INVALID` for a range outside its buffer.
    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()>;

    /// Copies between buffers of the device.
    ///
    /// # Errors
    /// `INVALID` for a range outside its buffer or of another length.
    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()>;

    /// The address at which the host can access a range directly, if there is one. It is valid
    /// until the buffer is freed.
    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        let _ = range;
        None
    }

    /// Makes host memory a buffer to copy from and to. Where the device's memory is the host's,
    /// kernels may also work on it. Freeing the buffer ends the loan and unmaps nothing.
    ///
    /// # Errors
    /// `UNSUPPORTED` where the backend cannot use host memory; `INVALID` for an address that is not
    /// aligned.
    fn import(&self, memory: HostMemory) -> Result<Buffer> {
        let bytes = memory.bytes();
        Err(PluginError::unsupported(format!(
            "this backend takes no memory of the host's ({bytes} bytes were offered)"
        )))
    }

    /// The address of a range as other libraries of the device name it, such as a `CUdeviceptr`,
    /// if there is one. It is valid until the buffer is freed. Device collectives need it.
    fn native_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        let _ = range;
        None
    }
}

/// A device's streams and events.
pub trait Streams: Send + Sync {
    /// A new stream besides the compute stream.
    ///
    /// # Errors
    /// `DEVICE` where the device has no more.
    fn stream(&self) -> Result<Stream>;

    /// An event that is complete when all work put on `stream` so far is done.
    ///
    /// # Errors
    /// `INVALID` for a stream that does not exist.
    fn record(&self, stream: Stream) -> Result<Event>;

    /// Makes all work put on `stream` later wait for `event`.
    ///
    /// # Errors
    /// `INVALID` for a stream or event that does not exist.
    fn wait(&self, stream: Stream, event: Event) -> Result<()>;

    /// Waits until all work put on `stream` so far is done.
    ///
    /// # Errors
    /// `DEVICE` where work on the stream failed.
    fn synchronize(&self, stream: Stream) -> Result<()>;

    /// Whether `event` is complete. Never waits. A backend without it has done all work when a call
    /// returns, or blocks in [`Memory::download`].
    ///
    /// # Errors
    /// `INVALID` for an event that does not exist; `DEVICE` where work before it failed.
    fn query(&self, event: Event) -> Result<bool> {
        let _ = event;
        Ok(true)
    }

    /// Frees an event. It may be incomplete: work that was made to wait for it still does.
    ///
    /// # Errors
    /// `INVALID` for an event that does not exist.
    fn free_event(&self, event: Event) -> Result<()> {
        let _ = event;
        Ok(())
    }

    /// The handle of a stream as other libraries of the device name it, such as a `cudaStream_t`,
    /// if there is one. It is valid as long as the device. Device collectives need it.
    fn native_stream(&self, stream: Stream) -> Option<NonNull<()>> {
        let _ = stream;
        None
    }

    /// The number of the device as other libraries of it count, such as a CUDA ordinal, if there is
    /// one. Device collectives need it.
    fn native_device(&self) -> Option<u32> {
        None
    }
}

/// A device's kernels.
pub trait Kernels: Send + Sync {
    /// Prepares a kernel. `decoders` has one entry per param, set where its format is
    /// [`crate::format::Decoding::Callback`].
    ///
    /// # Errors
    /// `UNSUPPORTED` for an op, version, dtype or layout that the backend does not have; the
    /// message names it.
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared>;

    /// Puts a kernel on a stream. Allocates nothing and waits for nothing.
    ///
    /// # Errors
    /// `INVALID` for ranges that do not fit the request.
    fn launch(&self, launch: &Launch<'_>) -> Result<()>;

    /// Releases a kernel. Launches of it may be incomplete; no further one is made.
    ///
    /// # Errors
    /// `INVALID` for a kernel that was not prepared.
    fn release(&self, kernel: Kernel) -> Result<()> {
        let _ = kernel;
        Ok(())
    }
}
