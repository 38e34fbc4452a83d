//! A checked range of a buffer, and its copies where the host can touch it.
#![allow(unsafe_code)] // Copies of mapped memory.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use espalier_interface::{BufferRange, PluginError, Result};

/// Something that keeps memory alive.
type Owner = Arc<dyn Any + Send + Sync>;

/// A checked range of a buffer, which keeps the buffer's memory alive.
#[derive(Clone)]
pub struct Span {
    _owner: Owner,
    /// First byte.
    pub start: NonNull<u8>,
    /// Length in bytes.
    pub bytes: usize,
    /// Whether the host can read and write it.
    on_host: bool,
}

impl Span {
    /// Memory of a device that the host cannot touch: its address is given to the device's library,
    /// and never followed here.
    pub fn of_device(owner: Owner, start: NonNull<u8>, bytes: usize) -> Self {
        Span {
            _owner: owner,
            start,
            bytes,
            on_host: false,
        }
    }

    /// Memory of the host.
    ///
    /// # Safety
    /// The bytes are mapped as long as `owner` lives, and the host orders their uses.
    pub(crate) unsafe fn of_host(owner: Owner, start: NonNull<u8>, bytes: usize) -> Self {
        Span {
            _owner: owner,
            start,
            bytes,
            on_host: true,
        }
    }

    /// Panics where the host cannot touch the memory.
    pub(crate) fn assert_on_host(&self) {
        assert!(self.on_host, "the host touches a device's memory");
    }

    /// Copies `from` here; both have the same length.
    pub(crate) fn fill(&self, from: &[u8]) {
        self.assert_on_host();
        assert_eq!(from.len(), self.bytes);
        // SAFETY: the span is mapped; the host uses it nowhere else meanwhile. `from` is borrowed
        // host memory.
        unsafe { std::ptr::copy(from.as_ptr(), self.start.as_ptr(), self.bytes) };
    }

    /// Copies the bytes to `to`, of the same length.
    pub(crate) fn read(&self, to: &mut [u8]) {
        self.assert_on_host();
        assert_eq!(to.len(), self.bytes);
        // SAFETY: as in `fill`.
        unsafe { std::ptr::copy(self.start.as_ptr(), to.as_mut_ptr(), self.bytes) };
    }

    /// Copies the bytes to `to`, of the same length; the two may overlap.
    pub(crate) fn copy(&self, to: &Span) {
        self.assert_on_host();
        to.assert_on_host();
        assert_eq!(to.bytes, self.bytes);
        // SAFETY: both spans are mapped; the host uses them nowhere else meanwhile.
        unsafe { std::ptr::copy(self.start.as_ptr(), to.start.as_ptr(), self.bytes) };
    }
}

/// Checks that `range` lies within its buffer, which has `bytes` bytes.
///
/// # Errors
/// `INVALID` for a range that ends beyond it.
pub fn check_within(range: BufferRange, bytes: u64) -> Result<()> {
    let end = range.offset.checked_add(range.bytes);
    if end.is_some_and(|end| end <= bytes) {
        return Ok(());
    }
    Err(PluginError::invalid(format!(
        "bytes {} to {} + {} of buffer {}, which has {bytes}",
        range.offset, range.offset, range.bytes, range.buffer.0
    )))
}

/// Checks that a copy of `from` bytes fills a range of `to` bytes.
///
/// # Errors
/// `INVALID` where it does not.
pub fn check_lengths(from: usize, to: usize) -> Result<()> {
    if from == to {
        return Ok(());
    }
    let message = format!("{from} bytes copied to a range of {to}");
    Err(PluginError::invalid(message))
}
