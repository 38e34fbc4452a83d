//! Small uploads -> pinned memory that the caller's bytes are copied to first.
//!
//! A copy from memory that the driver has pinned reads it when the stream comes to it. So bytes
//! that the caller may reuse are copied to a slot of pinned memory; a slot is used again when its
//! copy is done.
#![allow(unsafe_code)] // Copies to pinned memory.

use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use espalier_interface::{PluginError, Result};

use crate::card::Card;
use crate::streams::{CudaEvent, CudaStream};

/// Bytes of a slot.
pub const SLOT_BYTES: usize = 256 << 10;

/// Slots.
const SLOTS: usize = 16;

/// Host memory that every context sees as pinned.
const PORTABLE: u32 = 1;

/// Slots of pinned memory.
pub struct Staging {
    card: Arc<Card>,
    start: NonNull<u8>,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    next: usize,
    /// The last copy from each slot.
    copies: [Option<CudaEvent>; SLOTS],
}

// SAFETY: the memory belongs to no thread, and slots are given under a lock.
unsafe impl Send for Staging {}
// SAFETY: as above.
unsafe impl Sync for Staging {}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.card.enter().is_ok() {
            // SAFETY: the driver gave the memory, and the device's work is done.
            unsafe { (self.card.driver.free_host)(self.start.as_ptr().cast()) };
        }
    }
}

impl Staging {
    /// Slots that nothing uses.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new(card: Arc<Card>) -> Result<Self> {
        card.enter()?;
        let mut start = null_mut();
        // SAFETY: the driver writes an address.
        let code =
            unsafe { (card.driver.alloc_host)(&raw mut start, SLOTS * SLOT_BYTES, PORTABLE) };
        card.called("pinned memory for uploads", code)?;
        let start = NonNull::new(start.cast::<u8>());
        let start = start.ok_or_else(|| PluginError::invalid("CUDA: no memory for uploads"))?;
        Ok(Staging {
            card,
            start,
            ring: Mutex::default(),
        })
    }

    /// Puts a copy of `from`, at most [`SLOT_BYTES`], on a stream.
    ///
    /// # Safety
    /// As [`espalier_driver_device::Driver::upload`].
    ///
    /// # Errors
    /// `DEVICE`.
    pub unsafe fn upload(&self, from: &[u8], to: NonNull<u8>, stream: &CudaStream) -> Result<()> {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = ring.next;
        ring.next = (slot + 1) % SLOTS;
        if let Some(copy) = ring.copies[slot].take() {
            while !copy.is_complete()? {
                std::thread::yield_now();
            }
        }
        // SAFETY: the slot lies within the memory, and no copy reads it.
        let at = unsafe {
            let at = self.start.add(slot * SLOT_BYTES);
            std::ptr::copy_nonoverlapping(from.as_ptr(), at.as_ptr(), from.len());
            at
        };
        let to = to.as_ptr() as u64;
        let raw = stream.raw();
        // SAFETY: both places hold the bytes until the copy is done; the slot is given again when
        // its event is complete.
        let code =
            unsafe { (self.card.driver.copy_to_device)(to, at.as_ptr().cast(), from.len(), raw) };
        self.card.called("upload", code)?;
        ring.copies[slot] = Some(CudaEvent::record(stream)?);
        Ok(())
    }
}
