//! The device: the bookkeeping of memory, streams and kernels behind one lock each.

use std::ptr::NonNull;
use std::sync::Mutex;

use espalier_interface::{
    Buffer, BufferRange, Decoder, Event, HostMemory, KernelRequest, Kernels, Launch, Memory,
    MemoryKind, OpId, Prepared, Result, Stream, Streams,
};

use crate::kernels::Book;
use crate::memory::Ledger;
use crate::streams::Lanes;

/// A device that computes nothing.
pub struct NullDevice {
    memory: Mutex<Ledger>,
    lanes: Mutex<Lanes>,
    kernels: Mutex<Book>,
}

impl NullDevice {
    /// A device without buffers that has these ops.
    pub fn new(memory: Ledger, ops: Vec<OpId>) -> Self {
        NullDevice {
            memory: Mutex::new(memory),
            lanes: Mutex::new(Lanes::default()),
            kernels: Mutex::new(Book::new(ops)),
        }
    }
}

const SOUND: &str = "no call panics while it holds the lock";

impl Memory for NullDevice {
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer> {
        self.memory.lock().expect(SOUND).alloc(bytes, kind)
    }

    fn free(&self, buffer: Buffer) -> Result<()> {
        self.memory.lock().expect(SOUND).free(buffer)
    }

    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()> {
        self.lanes.lock().expect(SOUND).check(stream)?;
        let memory = self.memory.lock().expect(SOUND);
        memory.check(to)?;
        memory.same(from.len() as u64, to.bytes)
    }

    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()> {
        self.lanes.lock().expect(SOUND).check(stream)?;
        let memory = self.memory.lock().expect(SOUND);
        memory.check(from)?;
        memory.same(from.bytes, to.len() as u64)?;
        to.fill(0);
        Ok(())
    }

    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()> {
        self.lanes.lock().expect(SOUND).check(stream)?;
        let memory = self.memory.lock().expect(SOUND);
        memory.check(from)?;
        memory.check(to)?;
        memory.same(from.bytes, to.bytes)
    }

    fn import(&self, memory: HostMemory) -> Result<Buffer> {
        Ok(self.memory.lock().expect(SOUND).import(memory.bytes()))
    }

    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        self.memory.lock().expect(SOUND).host_address(range)
    }
}

impl Streams for NullDevice {
    fn stream(&self) -> Result<Stream> {
        Ok(self.lanes.lock().expect(SOUND).open())
    }

    fn record(&self, stream: Stream) -> Result<Event> {
        self.lanes.lock().expect(SOUND).record(stream)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.lanes.lock().expect(SOUND).wait(stream, event)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.lanes.lock().expect(SOUND).check(stream)
    }
}

impl Kernels for NullDevice {
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared> {
        self.kernels
            .lock()
            .expect(SOUND)
            .prepare(request, decoders.len())
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        self.lanes.lock().expect(SOUND).check(launch.stream)?;
        let memory = self.memory.lock().expect(SOUND);
        for range in launch.ranges {
            memory.check(*range)?;
        }
        self.kernels.lock().expect(SOUND).check(launch)
    }
}
