//! A CUDA device, driven by the shim.
#![allow(unsafe_code)] // Functions on addresses.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use espalier_interface::{ErrorCode, PluginError, Result};

use super::shim::{Shim, StreamName, called};
use espalier_driver_device::{Driver, Route};

/// Device number `index` of CUDA.
pub struct CudaDriver {
    shim: &'static Shim,
    index: i32,
    /// The stream whose memory the device's buffers are, for libtorch's allocator.
    home: StreamName,
}

/// An event of CUDA.
pub struct CudaEvent {
    shim: &'static Shim,
    native: NonNull<c_void>,
}

// SAFETY: CUDA's events may be used from any thread.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // An error is one of earlier work, which the next wait reports.
        let _ = called(|text| (self.shim.free_event)(self.native.as_ptr(), text));
    }
}

impl CudaDriver {
    /// The driver of device number `index`, which there is.
    ///
    /// # Errors
    /// `DEVICE` where it gives no stream.
    pub fn new(shim: &'static Shim, index: u32) -> Result<Self> {
        let index = index as i32;
        Ok(CudaDriver {
            shim,
            index,
            home: new_stream(shim, index)?,
        })
    }
}

fn new_stream(shim: &Shim, index: i32) -> Result<StreamName> {
    let mut made = StreamName::none();
    called(|text| (shim.stream)(index, &raw mut made, text))?;
    Ok(made)
}

/// A pointer that a call wrote.
fn written<T>(pointer: *mut T, what: &str) -> Result<NonNull<T>> {
    let missing = || PluginError::new(ErrorCode::DEVICE, format!("CUDA: no {what} was made"));
    NonNull::new(pointer).ok_or_else(missing)
}

impl Driver for CudaDriver {
    type Stream = StreamName;
    type Event = CudaEvent;

    fn alloc(&self, bytes: usize) -> Result<NonNull<u8>> {
        let mut address = null_mut();
        called(|text| {
            (self.shim.alloc)(&raw const self.home, bytes as u64, &raw mut address, text)
        })?;
        written(address.cast(), "memory")
    }

    unsafe fn free(&self, address: NonNull<u8>) {
        // An error is one of earlier work, which the next wait reports.
        let _ = called(|text| (self.shim.release)(address.as_ptr().cast(), text));
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<NonNull<u8>> {
        let mut address = null_mut();
        called(|text| (self.shim.alloc_pinned)(self.index, bytes as u64, &raw mut address, text))?;
        written(address.cast(), "memory")
    }

    unsafe fn free_pinned(&self, address: NonNull<u8>) {
        // As in `free`.
        let _ = called(|text| (self.shim.release_pinned)(address.as_ptr().cast(), text));
    }

    fn stream(&self) -> Result<StreamName> {
        new_stream(self.shim, self.index)
    }

    fn enter(&self, stream: &StreamName) -> Result<()> {
        called(|text| (self.shim.enter)(stream, text))
    }

    unsafe fn copy(
        &self,
        [from, to]: [NonNull<u8>; 2],
        bytes: usize,
        route: Route,
        stream: &StreamName,
    ) -> Result<()> {
        // As `cudaMemcpyKind` counts.
        let kind = match route {
            Route::ToDevice => 1,
            Route::ToHost => 2,
            Route::Within => 3,
        };
        let (from, to) = (from.as_ptr().cast(), to.as_ptr().cast());
        called(|text| (self.shim.copy)(stream, from, to, bytes as u64, kind, text))
    }

    unsafe fn upload(&self, from: &[u8], to: NonNull<u8>, stream: &StreamName) -> Result<()> {
        let (start, to) = (from.as_ptr().cast(), to.as_ptr().cast());
        called(|text| (self.shim.upload)(stream, start, to, from.len() as u64, text))
    }

    fn synchronize(&self, stream: &StreamName) -> Result<()> {
        called(|text| (self.shim.synchronize)(stream, text))
    }

    fn record(&self, stream: &StreamName) -> Result<CudaEvent> {
        let mut event = null_mut();
        called(|text| (self.shim.record)(stream, &raw mut event, text))?;
        Ok(CudaEvent {
            shim: self.shim,
            native: written(event, "event")?,
        })
    }

    fn wait(&self, stream: &StreamName, event: &CudaEvent) -> Result<()> {
        called(|text| (self.shim.wait)(stream, event.native.as_ptr(), text))
    }

    fn query(&self, event: &CudaEvent) -> Result<bool> {
        let mut complete = 0;
        called(|text| (self.shim.query)(event.native.as_ptr(), &raw mut complete, text))?;
        Ok(complete != 0)
    }

    fn native_stream(&self, stream: &StreamName) -> Option<NonNull<()>> {
        NonNull::new(stream.native.cast())
    }

    fn native_device(&self) -> Option<u32> {
        Some(self.index as u32)
    }
}
