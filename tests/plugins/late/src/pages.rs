//! A buffer's address and length -> its pages, which are closed except while a task runs on them.

use std::io;
use std::ptr::NonNull;

use espalier_interface::{ErrorCode, PluginError, Result};
use rustix::mm::{MprotectFlags, mprotect};

/// Bytes after the end of a buffer that kernels may read.
const TAIL: usize = 64;

/// The value of every byte of freed memory: NaN in all float types, and a large negative integer.
pub const POISON: u8 = 0xFF;

/// The pages of a buffer. They hold nothing else.
pub struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: pages belong to no thread; the device's lock orders the accesses.
unsafe impl Send for Pages {}

impl Pages {
    /// The pages of a buffer of `bytes` bytes at `start`, closed.
    ///
    /// # Safety
    /// `start` begins a private mapping of `bytes` and the tail, which is unmapped only after these
    /// pages are dropped.
    ///
    /// # Errors
    /// `DEVICE` where the operating system refuses.
    pub unsafe fn closed(start: NonNull<u8>, bytes: u64) -> Result<Self> {
        let pages = Pages {
            start,
            bytes: bytes as usize,
        };
        pages.close()?;
        Ok(pages)
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Lets this program read and write them.
    ///
    /// # Errors
    /// `DEVICE` where the operating system refuses.
    pub fn open(&self) -> Result<()> {
        self.protect(MprotectFlags::READ | MprotectFlags::WRITE)
    }

    /// Makes every access a segmentation fault.
    ///
    /// # Errors
    /// `DEVICE` where the operating system refuses.
    pub fn close(&self) -> Result<()> {
        self.protect(MprotectFlags::empty())
    }

    /// Overwrites every byte of the buffer. The pages must be open.
    pub fn poison(&self) {
        // SAFETY: the buffer is mapped, and its owner holds the device's lock.
        unsafe { std::ptr::write_bytes(self.start.as_ptr(), POISON, self.bytes) };
    }

    fn protect(&self, access: MprotectFlags) -> Result<()> {
        // SAFETY: the mapping is the buffer's alone, and only code that expects the pages as they
        // are now uses them.
        let done = unsafe { mprotect(self.start.as_ptr().cast(), self.bytes + TAIL, access) };
        done.map_err(|errno| {
            let why = io::Error::from(errno);
            let message = format!("the pages of a buffer of {} bytes: {why}", self.bytes);
            PluginError::new(ErrorCode::DEVICE, message)
        })
    }
}
