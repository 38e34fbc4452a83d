//! A device whose kernels of one op are the test's own.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use espalier_interface::{
    Buffer, BufferRange, Decoder, Device, Event, HostMemory, Kernel, KernelRequest, Kernels,
    Launch, Memory, MemoryKind, Prepared, Result, Stream, Streams,
};

/// What a launch of the op does on the device, where all earlier work is done.
pub type OwnKernel = fn(&dyn Device, &KernelRequest, &Launch<'_>) -> Result<()>;

/// A device whose calls are done when they return, but for one op.
pub struct OwnOp {
    device: Arc<dyn Device>,
    op: String,
    own: OwnKernel,
    prepared: Mutex<HashMap<Kernel, KernelRequest>>,
}

impl OwnOp {
    /// `device` with `own` in place of its kernels of `op`.
    pub fn new(device: Arc<dyn Device>, op: &str, own: OwnKernel) -> Self {
        OwnOp {
            device,
            op: op.to_owned(),
            own,
            prepared: Mutex::default(),
        }
    }
}

/// The bytes of a range.
///
/// # Errors
/// That of the device.
pub fn downloaded(device: &dyn Device, range: BufferRange) -> Result<Vec<u8>> {
    let mut bytes = vec![0; range.bytes as usize];
    device.download(range, &mut bytes, Stream(0))?;
    Ok(bytes)
}

impl Memory for OwnOp {
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer> {
        self.device.alloc(bytes, kind)
    }

    fn free(&self, buffer: Buffer) -> Result<()> {
        self.device.free(buffer)
    }

    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()> {
        self.device.upload(from, to, stream)
    }

    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()> {
        self.device.download(from, to, stream)
    }

    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()> {
        self.device.copy(from, to, stream)
    }

    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        self.device.host_address(range)
    }

    fn import(&self, memory: HostMemory) -> Result<Buffer> {
        self.device.import(memory)
    }
}

impl Streams for OwnOp {
    fn stream(&self) -> Result<Stream> {
        self.device.stream()
    }

    fn record(&self, stream: Stream) -> Result<Event> {
        self.device.record(stream)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.device.wait(stream, event)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.device.synchronize(stream)
    }

    fn query(&self, event: Event) -> Result<bool> {
        self.device.query(event)
    }

    fn free_event(&self, event: Event) -> Result<()> {
        self.device.free_event(event)
    }
}

impl Kernels for OwnOp {
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared> {
        if request.op != self.op {
            return self.device.prepare(request, decoders);
        }
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        // The device counts its kernels from below.
        let kernel = Kernel(u64::MAX - prepared.len() as u64);
        prepared.insert(kernel, request.clone());
        Ok(Prepared {
            kernel,
            workspace_bytes: 0,
        })
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        let request = {
            let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
            prepared.get(&launch.kernel).cloned()
        };
        match request {
            Some(request) => (self.own)(self.device.as_ref(), &request, launch),
            None => self.device.launch(launch),
        }
    }

    /// Its own are kept, so that none gets the number of another.
    fn release(&self, kernel: Kernel) -> Result<()> {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if prepared.contains_key(&kernel) {
            return Ok(());
        }
        self.device.release(kernel)
    }
}
