//! Host memory that a device uses: an address, with a promise that it stays valid.
#![allow(unsafe_code)] // The caller of `new` promises that the address is valid.

use std::ptr::NonNull;

/// Memory that the host owns and lends to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    address: NonNull<u8>,
    bytes: u64,
}

// SAFETY: its maker promised that the bytes are valid on every thread.
unsafe impl Send for HostMemory {}

impl HostMemory {
    /// The `bytes` bytes that begin at `address`.
    ///
    /// # Safety
    /// The address is a multiple of 64. The bytes can be read and written, and the 64 bytes after
    /// them can be read, until every device that they are lent to has freed its buffer.
    pub unsafe fn new(address: NonNull<u8>, bytes: u64) -> Self {
        HostMemory { address, bytes }
    }

    /// The first byte.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
