//! Sums of several members' numbers, added in the order of the members by a kernel.
#![allow(unsafe_code)] // Calls of the driver.

use std::sync::Arc;

use cudarc::driver::sys::CUstream;
use espalier_interface::{DType, PluginError, Result};

use super::DTYPES;
use crate::arguments::Arguments;
use crate::card::Card;
use crate::current;
use crate::modules::{Function, Modules};
use crate::sources::ORDERED_SUM;

/// Bytes of a group's memory for what members receive before it is added.
pub const RECEIVED_BYTES: usize = 16 << 20;

/// A multiple of bytes at which a slot begins.
const SLOT_ALIGNMENT: usize = 256;

/// The kernels that add, and memory for what other members sent.
pub struct Sums {
    card: Arc<Card>,
    kernels: Vec<(DType, Function)>,
    /// Of the first slot.
    address: u64,
    /// Of a slot; one for each other member.
    slot_bytes: usize,
}

impl Drop for Sums {
    fn drop(&mut self) {
        if self.card.enter().is_ok() {
            // SAFETY: the driver gave the memory; freeing waits for work that uses it.
            unsafe { (self.card.driver.free)(self.address) };
        }
    }
}

impl Sums {
    /// Sums in a group of `members`.
    ///
    /// # Errors
    /// `DEVICE` where the kernels cannot be compiled or loaded; `OUT_OF_MEMORY`.
    pub fn new(modules: &Modules, card: &Arc<Card>, members: usize) -> Result<Self> {
        let kernel = |dtype: DType| {
            let function = modules.function(ORDERED_SUM, "", &format!("ordered_sum_{dtype}"))?;
            Ok((dtype, function.compiled()?))
        };
        let kernels = DTYPES.into_iter().map(kernel).collect::<Result<_>>()?;
        card.enter()?;
        let mut address = 0;
        // SAFETY: the driver writes an address.
        let code = unsafe { (card.driver.alloc)(&raw mut address, RECEIVED_BYTES) };
        card.called("memory for the parts of sums", code)?;
        let each = RECEIVED_BYTES / members.saturating_sub(1).max(1);
        Ok(Sums {
            card: card.clone(),
            kernels,
            address,
            slot_bytes: each - each % SLOT_ALIGNMENT,
        })
    }

    /// Bytes of a part that can be added at once.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The address of the slot for member `other`, at member `own`.
    pub fn slot(&self, own: usize, other: usize) -> u64 {
        let slot = if other < own { other } else { other - 1 };
        self.address + (slot * self.slot_bytes) as u64
    }

    /// Puts the sum of `count` elements on `stream`: member `own`'s at `part`, the others' in their
    /// slots. `sum` may be `part`.
    ///
    /// # Errors
    /// `DEVICE`; `INVALID` for a dtype that is not summed.
    pub fn add(
        &self,
        dtype: DType,
        [own, members]: [usize; 2],
        [part, sum]: [u64; 2],
        count: usize,
        stream: CUstream,
    ) -> Result<()> {
        let kernel = self.kernels.iter().find(|(of, _)| *of == dtype);
        let (_, kernel) =
            kernel.ok_or_else(|| PluginError::invalid(format!("no sum of {dtype}")))?;
        let stride = self.slot_bytes as i64 / dtype.bytes() as i64;
        let arguments = Arguments::new().with(part).with(self.address).with(sum);
        let arguments = arguments.with(own as i32).with(members as i32);
        let arguments = arguments.with(stride).with(count as i64);
        self.card.enter()?;
        current::set_stream(stream);
        kernel.launch_over(count, &arguments)
    }
}
