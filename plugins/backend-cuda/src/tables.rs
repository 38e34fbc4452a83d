//! Tables that kernels read: bytes in a card's memory, for as long as a kernel needs them.
#![allow(unsafe_code)] // Calls of the driver.

use std::sync::Arc;

use espalier_interface::Result;

use crate::card::Card;
use crate::streams::CudaStream;

/// A table in a card's memory.
pub struct DeviceTable {
    card: Arc<Card>,
    address: u64,
}

impl Drop for DeviceTable {
    fn drop(&mut self) {
        if self.card.enter().is_ok() {
            // SAFETY: the driver gave the memory; freeing waits for work that reads it.
            unsafe { (self.card.driver.free)(self.address) };
        }
    }
}

impl DeviceTable {
    /// A table of `bytes`, which are there on return.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`, `DEVICE`.
    pub fn new(card: Arc<Card>, bytes: &[u8]) -> Result<Self> {
        let stream = CudaStream::new(&card)?;
        let mut address = 0;
        // SAFETY: the driver writes an address, of memory that is then filled; the stream lives
        // until the copy is done.
        unsafe {
            let code = (card.driver.alloc)(&raw mut address, bytes.len());
            card.called("memory of a table", code)?;
            let table = DeviceTable { card, address };
            let (card, stream) = (&table.card, stream.raw());
            let from = bytes.as_ptr().cast();
            let code = (card.driver.copy_to_device)(address, from, bytes.len(), stream);
            card.called("copy of a table", code)?;
            card.called("wait for a table", (card.driver.synchronize)(stream))?;
            Ok(table)
        }
    }

    /// Its address, as kernels take it.
    pub fn address(&self) -> u64 {
        self.address
    }
}
