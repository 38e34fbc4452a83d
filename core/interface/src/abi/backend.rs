//! The backend's table: devices, memory, streams and kernels, besides the methods of every
//! component.

pub(super) mod completion;
pub(super) mod host_memory;
mod host_side;
pub(super) mod native;
mod plugin_side;

use abi_stable::StableAbi;
use abi_stable::std_types::{RSlice, RSliceMut};

use super::Opaque;
use super::reply::Reply;
use crate::role::{Buffer, BufferRange};

pub use completion::{COMPLETION_VERSION, CompletionTable};
pub use host_memory::{HOST_MEMORY_VERSION, HostMemoryTable};
pub use host_side::BackendProxy;
pub use native::{NATIVE_VERSION, NativeTable};
pub(super) use plugin_side::BACKEND_TABLE;

/// Version of [`BackendTable`].
pub const BACKEND_VERSION: u32 = 1;

/// A [`BufferRange`] in the form that crosses the boundary.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct RangeCall {
    buffer: u64,
    offset: u64,
    bytes: u64,
}

/// A [`Decoder`] in the form that crosses the boundary; a null function means none.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct DecoderCall {
    context: Opaque,
    decode: Opaque,
}

/// A [`Launch`] in the form that crosses the boundary.
#[repr(C)]
#[derive(StableAbi)]
pub struct LaunchCall<'a> {
    kernel: u64,
    stream: u64,
    ranges: RSlice<'a, RangeCall>,
    workspace: RangeCall,
    tokens: u64,
    sequences: u64,
    scalars: RSlice<'a, f64>,
}

/// A [`Prepared`] in the form that crosses the boundary.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct PreparedReply {
    kernel: u64,
    workspace_bytes: u64,
}

/// The functions of a backend besides its methods. The first argument is a device, except for
/// `open`, where it is the backend.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
#[allow(missing_docs)] // each is the trait's method of that name
pub struct BackendTable {
    pub open: extern "C" fn(Opaque, u32) -> Reply<Opaque>,
    pub close: extern "C" fn(Opaque),
    pub alloc: extern "C" fn(Opaque, u64, u32) -> Reply<u64>,
    pub free: extern "C" fn(Opaque, u64) -> Reply<()>,
    pub upload: extern "C" fn(Opaque, RSlice<'_, u8>, RangeCall, u64) -> Reply<()>,
    pub download: extern "C" fn(Opaque, RangeCall, RSliceMut<'_, u8>, u64) -> Reply<()>,
    pub copy: extern "C" fn(Opaque, RangeCall, RangeCall, u64) -> Reply<()>,
    pub host_address: extern "C" fn(Opaque, RangeCall) -> Opaque,
    pub stream: extern "C" fn(Opaque) -> Reply<u64>,
    pub record: extern "C" fn(Opaque, u64) -> Reply<u64>,
    pub wait: extern "C" fn(Opaque, u64, u64) -> Reply<()>,
    pub synchronize: extern "C" fn(Opaque, u64) -> Reply<()>,
    pub prepare:
        extern "C" fn(Opaque, RSlice<'_, u8>, RSlice<'_, DecoderCall>) -> Reply<PreparedReply>,
    pub launch: extern "C" fn(Opaque, LaunchCall<'_>) -> Reply<()>,
}

impl From<BufferRange> for RangeCall {
    fn from(range: BufferRange) -> Self {
        RangeCall {
            buffer: range.buffer.0,
            offset: range.offset,
            bytes: range.bytes,
        }
    }
}

impl From<RangeCall> for BufferRange {
    fn from(range: RangeCall) -> Self {
        BufferRange {
            buffer: Buffer(range.buffer),
            offset: range.offset,
            bytes: range.bytes,
        }
    }
}
