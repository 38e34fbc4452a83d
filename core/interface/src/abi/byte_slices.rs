//! Slices of bytes in the form that crosses the boundary.

use abi_stable::StableAbi;

/// A read-only byte slice.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub(super) struct Bytes {
    pub(super) start: *const u8,
    pub(super) len: usize,
}

/// A writable byte slice.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub(super) struct BytesMut {
    pub(super) start: *mut u8,
    pub(super) len: usize,
}
