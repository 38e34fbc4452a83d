//! Memory of the host's that a device works on: an address and a promise.
#![allow(unsafe_code)] // The promise is whose address it is.

use std::ptr::NonNull;

/// Memory that the host owns and lends to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    address: NonNull<u8>,
    bytes: u64,
}

// SAFETY: whoever made it keeps the bytes valid wherever they are used.
unsafe impl Send for HostMemory {}

impl HostMemory {
    /// `bytes` bytes from `address` on.
    ///
    /// # Safety
    /// The address is a multiple of 64. The bytes can be read and written, and 64 more be read, until the last device that
    /// they are lent to has given them back.
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
