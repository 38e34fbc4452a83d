//! The table of backends whose memory and streams other libraries of the device can use, besides
//! the table of all backends.

use std::ptr::NonNull;

use abi_stable::StableAbi;

use super::RangeCall;
use super::plugin_side::device;
use crate::PluginError;
use crate::abi::Opaque;
use crate::abi::reply::{Reply, guard, plain};
use crate::role::{BufferRange, Stream};

/// Version of [`NativeTable`].
pub const NATIVE_VERSION: u32 = 1;

/// The functions of a backend besides its own table. The first argument is a device; a null pointer
/// stands for none.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct NativeTable {
    /// [`crate::Memory::native_address`].
    pub address: extern "C" fn(Opaque, RangeCall) -> Opaque,
    /// [`crate::Streams::native_stream`].
    pub stream: extern "C" fn(Opaque, u64) -> Opaque,
    /// [`crate::Streams::native_device`]; `UNSUPPORTED` for none.
    pub device: extern "C" fn(Opaque) -> Reply<u32>,
}

pub(in crate::abi) static NATIVE_TABLE: NativeTable = NativeTable {
    address,
    stream,
    device: number,
};

extern "C" fn address(handle: Opaque, range: RangeCall) -> Opaque {
    pointer(guard(|| {
        Ok(device(handle)
            .native_address(range.into())
            .map(NonNull::cast))
    }))
}

extern "C" fn stream(handle: Opaque, stream: u64) -> Opaque {
    pointer(guard(|| Ok(device(handle).native_stream(Stream(stream)))))
}

extern "C" fn number(handle: Opaque) -> Reply<u32> {
    guard(|| {
        let number = device(handle).native_device();
        number.ok_or_else(|| PluginError::unsupported("this device has no number of its own"))
    })
}

fn pointer(found: Reply<Option<NonNull<()>>>) -> Opaque {
    match found.into_result() {
        Ok(Some(pointer)) => pointer.as_ptr().cast_const().cast(),
        _ => std::ptr::null(),
    }
}

impl NativeTable {
    pub(in crate::abi) fn address_of(
        &self,
        handle: Opaque,
        range: BufferRange,
    ) -> Option<NonNull<u8>> {
        NonNull::new((self.address)(handle, range.into()).cast_mut().cast())
    }

    pub(in crate::abi) fn handle_of(&self, handle: Opaque, stream: Stream) -> Option<NonNull<()>> {
        NonNull::new((self.stream)(handle, stream.0).cast_mut().cast())
    }

    pub(in crate::abi) fn number_of(&self, handle: Opaque) -> Option<u32> {
        plain((self.device)(handle)).ok()
    }
}
