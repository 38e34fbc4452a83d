//! What allocates, copies and orders on a device whose memory the host cannot touch.

use std::ptr::NonNull;

use espalier_interface::Result;

/// The driver of a device: memory, streams and events.
///
/// Work on a stream runs in order; events alone order two streams. A copy may return before it is
/// done. Errors of earlier work have the code `DEVICE`, in any call.
#[allow(unsafe_code)] // Functions on addresses.
pub trait Driver: Send + Sync + 'static {
    /// A stream. It ends with the driver.
    type Stream: Send + Sync + 'static;
    /// A point in a stream. Work that was made to wait for it still does when it is dropped.
    type Event: Send + Sync + 'static;

    /// Memory of the device, aligned to 64 bytes, with zeros that are there on return.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` where the device has no room.
    fn alloc(&self, bytes: usize) -> Result<NonNull<u8>>;

    /// Frees memory of [`Driver::alloc`].
    ///
    /// # Safety
    /// No work uses it, and it is not used or freed again.
    unsafe fn free(&self, address: NonNull<u8>);

    /// Zeros in memory of the host that copies fast, aligned to 64 bytes.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` where as much is not pinned; the device then has other memory of the host.
    fn alloc_pinned(&self, bytes: usize) -> Result<NonNull<u8>>;

    /// Frees memory of [`Driver::alloc_pinned`].
    ///
    /// # Safety
    /// As [`Driver::free`].
    unsafe fn free_pinned(&self, address: NonNull<u8>);

    /// Makes memory of the host's copy as fast as pinned memory, until it is given to
    /// [`Driver::unregister`] as often. False where it stays as it is.
    fn register(&self, address: NonNull<u8>, bytes: usize) -> bool {
        let _ = (address, bytes);
        false
    }

    /// Ends what [`Driver::register`] began.
    ///
    /// # Safety
    /// It was registered, and no copy uses it.
    unsafe fn unregister(&self, address: NonNull<u8>) {
        let _ = address;
    }

    /// Another stream.
    ///
    /// # Errors
    /// `DEVICE` where there are no more.
    fn stream(&self) -> Result<Self::Stream>;

    /// From now on the library's work of this thread goes to `stream`.
    ///
    /// # Errors
    /// `DEVICE`.
    fn enter(&self, stream: &Self::Stream) -> Result<()>;

    /// Puts a copy on a stream.
    ///
    /// # Safety
    /// `bytes` bytes from both places on, from and to, are memory of the kinds that `route` names
    /// until the copy is done, and what uses them is ordered by streams and events.
    ///
    /// # Errors
    /// `DEVICE`.
    unsafe fn copy(
        &self,
        places: [NonNull<u8>; 2],
        bytes: usize,
        route: Route,
        stream: &Self::Stream,
    ) -> Result<()>;

    /// Puts a copy of the host's bytes on a stream; `from` may be used again on return.
    ///
    /// # Safety
    /// As [`Driver::copy`], of device memory at `to`.
    ///
    /// # Errors
    /// `DEVICE`.
    unsafe fn upload(&self, from: &[u8], to: NonNull<u8>, stream: &Self::Stream) -> Result<()>;

    /// Waits until all work on a stream is done.
    ///
    /// # Errors
    /// `DEVICE` where some failed.
    fn synchronize(&self, stream: &Self::Stream) -> Result<()>;

    /// An event that is complete when all work on a stream so far is done.
    ///
    /// # Errors
    /// `DEVICE`.
    fn record(&self, stream: &Self::Stream) -> Result<Self::Event>;

    /// Makes later work on a stream wait for an event.
    ///
    /// # Errors
    /// `DEVICE`.
    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> Result<()>;

    /// Whether an event is complete. Never waits.
    ///
    /// # Errors
    /// `DEVICE` where work before it failed.
    fn query(&self, event: &Self::Event) -> Result<bool>;

    /// The stream as other libraries of the device name it.
    fn native_stream(&self, stream: &Self::Stream) -> Option<NonNull<()>> {
        let _ = stream;
        None
    }

    /// The device as other libraries of it count.
    fn native_device(&self) -> Option<u32> {
        None
    }
}

/// The memory that a copy goes from and to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// From the host to the device.
    ToDevice,
    /// From the device to the host.
    ToHost,
    /// Within the device.
    Within,
}
