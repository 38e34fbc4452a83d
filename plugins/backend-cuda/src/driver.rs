//! The driver of a card: memory, streams and events.
#![allow(unsafe_code)] // Calls of the driver.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use espalier_driver_device::{Driver, Route};
use espalier_interface::{ErrorCode, LogLevel, PluginError, Result, Services};

use crate::card::Card;
use crate::fault::FaultPlace;
use crate::staging::{SLOT_BYTES, Staging};
use crate::streams::{CudaEvent, CudaStream};
use crate::{current, lost_groups, registered};

/// Host memory that every context sees as pinned.
const PORTABLE: u32 = 1;

/// The driver of a card.
pub struct CudaDriver {
    card: Arc<Card>,
    faults: Arc<FaultPlace>,
    /// None where the system pins no memory for it.
    staging: Option<Staging>,
    /// For the zeros of new memory.
    home: CudaStream,
    services: Arc<dyn Services>,
    /// Set once the user knows that lent memory is not registered.
    is_told: AtomicBool,
}

/// Codes with which the driver refuses to pin memory of the host: out of memory, a call of the
/// operating system failed, not permitted, not supported.
const UNPINNED: [u32; 4] = [2, 304, 800, 801];

impl CudaDriver {
    /// The driver of `card`, whose kernels write what they find wrong to `faults`.
    ///
    /// # Errors
    /// `DEVICE` where it gives no stream.
    pub fn new(
        card: Arc<Card>,
        faults: Arc<FaultPlace>,
        services: Arc<dyn Services>,
    ) -> Result<Self> {
        // Other failures are those of the stream, too.
        let staging = Staging::new(card.clone()).ok();
        Ok(CudaDriver {
            faults,
            staging,
            services,
            is_told: AtomicBool::new(false),
            home: CudaStream::new(&card)?,
            card,
        })
    }
}

/// An address that the driver gave.
fn given(address: *mut u8) -> Result<NonNull<u8>> {
    let missing = || PluginError::new(ErrorCode::DEVICE, "CUDA: no memory was given");
    NonNull::new(address).ok_or_else(missing)
}

impl Driver for CudaDriver {
    type Stream = CudaStream;
    type Event = CudaEvent;

    fn alloc(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.card.enter()?;
        let mut address = 0;
        // SAFETY: the driver writes an address, of memory that is then filled.
        unsafe {
            let code = (self.card.driver.alloc)(&raw mut address, bytes);
            self.card.called("memory of the card", code)?;
            let code = (self.card.driver.fill)(address, 0, bytes, self.home.raw());
            self.card.called("zeros", code)?;
        }
        self.synchronize(&self.home)?;
        given(address as *mut u8)
    }

    unsafe fn free(&self, address: NonNull<u8>) {
        if self.card.enter().is_ok() {
            // SAFETY: the caller's. An error is one of earlier work, which the next wait reports.
            unsafe { (self.card.driver.free)(address.as_ptr() as u64) };
        }
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.card.enter()?;
        let mut address: *mut c_void = null_mut();
        // SAFETY: the driver writes an address.
        let code = unsafe { (self.card.driver.alloc_host)(&raw mut address, bytes, PORTABLE) };
        let refused = |error: PluginError| {
            if UNPINNED.contains(&code) {
                PluginError::new(ErrorCode::OUT_OF_MEMORY, error.message)
            } else {
                error
            }
        };
        self.card.called("pinned memory", code).map_err(refused)?;
        let address = given(address.cast())?;
        // SAFETY: the memory has this many bytes.
        unsafe { address.as_ptr().write_bytes(0, bytes) };
        Ok(address)
    }

    unsafe fn free_pinned(&self, address: NonNull<u8>) {
        if self.card.enter().is_ok() {
            // SAFETY: as in `free`.
            unsafe { (self.card.driver.free_host)(address.as_ptr().cast()) };
        }
    }

    fn register(&self, address: NonNull<u8>, bytes: usize) -> bool {
        let refused = registered::register(&self.card, address, bytes);
        if let Err(why) = &refused
            && !self.is_told.swap(true, Ordering::Relaxed)
        {
            let what = format!(
                "{bytes} bytes of the host's memory are not pinned, so copies from it wait and take longer: {why}; ask for less offload, or raise the limits on locked memory (`ulimit -l`, a container's)"
            );
            self.services.log(LogLevel::WARN, &what);
        }
        refused.is_ok()
    }

    unsafe fn unregister(&self, address: NonNull<u8>) {
        // SAFETY: the caller's.
        unsafe { registered::unregister(&self.card, address) };
    }

    fn stream(&self) -> Result<CudaStream> {
        CudaStream::new(&self.card)
    }

    fn enter(&self, stream: &CudaStream) -> Result<()> {
        current::set_stream(stream.raw());
        self.card.enter()
    }

    unsafe fn copy(
        &self,
        [from, to]: [NonNull<u8>; 2],
        bytes: usize,
        route: Route,
        stream: &CudaStream,
    ) -> Result<()> {
        self.card.enter()?;
        let (from, to) = (from.as_ptr(), to.as_ptr());
        let driver = self.card.driver;
        // SAFETY: the caller's.
        let code = unsafe {
            match route {
                Route::ToDevice => {
                    (driver.copy_to_device)(to as u64, from.cast(), bytes, stream.raw())
                }
                Route::ToHost => (driver.copy_to_host)(to.cast(), from as u64, bytes, stream.raw()),
                Route::Within => (driver.copy_within)(to as u64, from as u64, bytes, stream.raw()),
            }
        };
        self.card.called("copy", code)
    }

    unsafe fn upload(&self, from: &[u8], to: NonNull<u8>, stream: &CudaStream) -> Result<()> {
        if let Some(staging) = &self.staging
            && from.len() <= SLOT_BYTES
        {
            self.card.enter()?;
            // SAFETY: the caller's.
            return unsafe { staging.upload(from, to, stream) };
        }
        let start = NonNull::from(from).cast();
        // SAFETY: the caller's; the bytes are borrowed until the copy is done.
        unsafe { self.copy([start, to], from.len(), Route::ToDevice, stream)? };
        self.synchronize(stream)
    }

    fn synchronize(&self, stream: &CudaStream) -> Result<()> {
        self.card.enter()?;
        // SAFETY: the stream lives.
        let code = unsafe { (self.card.driver.synchronize)(stream.raw()) };
        self.card.called("wait", code)?;
        lost_groups::check(self.card.index)?;
        self.faults.take()
    }

    fn record(&self, stream: &CudaStream) -> Result<CudaEvent> {
        CudaEvent::record(stream)
    }

    fn wait(&self, stream: &CudaStream, event: &CudaEvent) -> Result<()> {
        self.card.enter()?;
        // SAFETY: both live.
        let code = unsafe { (self.card.driver.wait)(stream.raw(), event.raw(), 0) };
        self.card.called("wait for an event", code)
    }

    fn query(&self, event: &CudaEvent) -> Result<bool> {
        event.is_complete()
    }

    fn native_stream(&self, stream: &CudaStream) -> Option<NonNull<()>> {
        NonNull::new(stream.raw().cast())
    }

    fn native_device(&self) -> Option<u32> {
        Some(self.card.index)
    }
}
