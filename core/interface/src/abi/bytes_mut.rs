//! A writable slice of bytes in the form that crosses the boundary.

use abi_stable::StableAbi;

/// A writable byte slice.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub(super) struct BytesMut {
    pub(super) start: *mut u8,
    pub(super) len: usize,
}
