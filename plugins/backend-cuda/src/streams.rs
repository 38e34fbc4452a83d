//! Streams and events of a card.
#![allow(unsafe_code)] // Calls of the driver.

use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUstream};
use espalier_interface::Result;

use crate::card::Card;
use crate::lost_groups;

/// A stream that does not wait for the default one.
const NON_BLOCKING: u32 = 1;

/// An event without a time.
const WITHOUT_TIME: u32 = 2;

/// The code of an event that is not complete.
const NOT_READY: u32 = 600;

/// A stream of a card.
pub struct CudaStream {
    card: Arc<Card>,
    raw: CUstream,
}

/// An event of a card.
pub struct CudaEvent {
    card: Arc<Card>,
    raw: CUevent,
}

// SAFETY: CUDA's streams and events may be used from any thread.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}
// SAFETY: as above.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl CudaStream {
    /// A new stream.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn new(card: &Arc<Card>) -> Result<Self> {
        card.enter()?;
        let mut raw = null_mut();
        // SAFETY: the driver writes a handle.
        card.called("stream", unsafe {
            (card.driver.stream)(&raw mut raw, NON_BLOCKING)
        })?;
        Ok(CudaStream {
            card: card.clone(),
            raw,
        })
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUstream {
        self.raw
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.card.enter().is_ok() {
            // SAFETY: the driver made the stream. An error is one of earlier work.
            unsafe { (self.card.driver.free_stream)(self.raw) };
        }
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if self.card.enter().is_ok() {
            // SAFETY: the driver made the event. An error is one of earlier work.
            unsafe { (self.card.driver.free_event)(self.raw) };
        }
    }
}

impl CudaEvent {
    /// An event that is complete when all work on `stream` so far is done.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn record(stream: &CudaStream) -> Result<Self> {
        let card = stream.card.clone();
        card.enter()?;
        let mut raw = null_mut();
        // SAFETY: the driver writes a handle; the stream lives.
        unsafe {
            card.called("event", (card.driver.event)(&raw mut raw, WITHOUT_TIME))?;
            let event = CudaEvent { card, raw };
            let code = (event.card.driver.record)(raw, stream.raw);
            event.card.called("record", code)?;
            Ok(event)
        }
    }

    /// Whether it is complete. Never waits.
    ///
    /// # Errors
    /// `DEVICE` where work before it failed; `PEER` where a group of the card is lost.
    pub fn is_complete(&self) -> Result<bool> {
        self.card.enter()?;
        // SAFETY: the event lives.
        let is_complete = match unsafe { (self.card.driver.query)(self.raw) } {
            NOT_READY => false,
            code => self.card.called("query", code).map(|()| true)?,
        };
        lost_groups::check(self.card.index)?;
        Ok(is_complete)
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUevent {
        self.raw
    }
}
