//! What kernels find wrong in their input: a place that they write, and the host reads when it
//! waits.
#![allow(unsafe_code)] // Memory that a card writes.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut, read_volatile, write_volatile};
use std::sync::Arc;

use espalier_interface::{PluginError, Result};

use crate::card::Card;

/// Host memory that a card sees at the same address, also from other contexts.
const PORTABLE_MAPPED: u32 = 3;

/// A fault, as `kernels/cuda/element.cuh` has it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Fault {
    code: i32,
    place: i32,
    value: i32,
    limit: i32,
}

/// Where the kernels of a device write faults.
pub struct FaultPlace {
    card: Arc<Card>,
    at: NonNull<Fault>,
}

// SAFETY: the memory belongs to no thread.
unsafe impl Send for FaultPlace {}
// SAFETY: as above; it is read and written whole words at a time.
unsafe impl Sync for FaultPlace {}

impl Drop for FaultPlace {
    fn drop(&mut self) {
        if self.card.enter().is_ok() {
            // SAFETY: the driver gave the memory, and the device's work is done.
            unsafe { (self.card.driver.free_host)(self.at.as_ptr().cast::<c_void>()) };
        }
    }
}

impl FaultPlace {
    /// A place without a fault.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new(card: Arc<Card>) -> Result<Self> {
        card.enter()?;
        let mut at = null_mut();
        // SAFETY: the driver writes an address.
        let code =
            unsafe { (card.driver.alloc_host)(&raw mut at, size_of::<Fault>(), PORTABLE_MAPPED) };
        card.called("memory for faults", code)?;
        let at = NonNull::new(at.cast::<Fault>());
        let at = at.ok_or_else(|| PluginError::invalid("CUDA: no memory for faults"))?;
        let place = FaultPlace { card, at };
        place.clear();
        Ok(place)
    }

    /// The address that kernels are given.
    pub fn address(&self) -> u64 {
        self.at.as_ptr() as u64
    }

    /// The fault that a kernel has written, if there is one; it is forgotten.
    ///
    /// # Errors
    /// `INVALID`, with what was found and what was expected.
    pub fn take(&self) -> Result<()> {
        // SAFETY: the memory is mapped as long as `self` lives.
        let fault = unsafe { read_volatile(self.at.as_ptr()) };
        if fault.code == 0 {
            return Ok(());
        }
        self.clear();
        Err(PluginError::invalid(fault.message()))
    }

    fn clear(&self) {
        // SAFETY: as in `take`.
        unsafe { write_volatile(self.at.as_ptr(), Fault::default()) };
    }
}

impl Fault {
    /// Its words. The codes are those of `kernels/cuda`.
    fn message(self) -> String {
        let Fault {
            code,
            place,
            value,
            limit,
        } = self;
        match code {
            1 => format!(
                "index {value} at token {place} of the batch is neither one of {limit} columns nor -100"
            ),
            2 => format!(
                "token {value} at index {place} of the batch is not in the vocabulary of {limit}; the data was tokenized for another model"
            ),
            3 => format!(
                "attention_cached: sequence {place} in slot {value} of {limit} does not fit the cache"
            ),
            _ => format!("a kernel found fault {code} at {place}: {value}, limit {limit}"),
        }
    }
}
