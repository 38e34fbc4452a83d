//! The backend `faulty-backend`: its own memory, and kernels that compute nothing.

use std::collections::HashMap;
use std::sync::Mutex;

use espalier_interface::{
    Backend, Buffer, BufferRange, Component, Decoder, Device, DeviceInfo, Event, Instance, Kernel,
    KernelRequest, Kernels, Launch, Memory, MemoryKind, PluginError, Prepared, Result, Role,
    Stream, Streams,
};

use crate::fault::{self, FaultPoint};

struct Numb;

#[derive(Default)]
struct NumbDevice {
    buffers: Mutex<HashMap<u64, Vec<u8>>>,
}

impl Backend for Numb {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(vec![DeviceInfo {
            name: "numb".to_owned(),
            description: "computes nothing".to_owned(),
            memory_bytes: 1 << 33,
            free_bytes: 1 << 33,
            instruction_set: String::new(),
            shares_host_memory: true,
            exact_memory: false,
            head_chunk_bytes: None,
        }])
    }

    fn open(&self, _: u32) -> Result<Box<dyn Device>> {
        Ok(Box::new(NumbDevice::default()))
    }
}

impl NumbDevice {
    fn with<T>(&self, range: BufferRange, work: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        let mut buffers = self
            .buffers
            .lock()
            .expect("nothing panics while it is held");
        let buffer = buffers.get_mut(&range.buffer.0);
        let (start, end) = (range.offset as usize, (range.offset + range.bytes) as usize);
        let bytes = buffer.and_then(|buffer| buffer.get_mut(start..end));
        Ok(work(
            bytes.ok_or_else(|| PluginError::invalid("no such range"))?,
        ))
    }
}

impl Memory for NumbDevice {
    fn alloc(&self, bytes: u64, _: MemoryKind) -> Result<Buffer> {
        let mut buffers = self
            .buffers
            .lock()
            .expect("nothing panics while it is held");
        let number = buffers.len() as u64 + 1;
        buffers.insert(number, vec![0; bytes as usize]);
        Ok(Buffer(number))
    }

    fn free(&self, _: Buffer) -> Result<()> {
        Ok(())
    }

    fn upload(&self, from: &[u8], to: BufferRange, _: Stream) -> Result<()> {
        self.with(to, |bytes| bytes.copy_from_slice(from))
    }

    fn download(&self, from: BufferRange, to: &mut [u8], _: Stream) -> Result<()> {
        self.with(from, |bytes| to.copy_from_slice(bytes))
    }

    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()> {
        let bytes = self.with(from, |bytes| bytes.to_vec())?;
        self.upload(&bytes, to, stream)
    }
}

impl Streams for NumbDevice {
    fn stream(&self) -> Result<Stream> {
        Ok(Stream(0))
    }

    fn record(&self, _: Stream) -> Result<Event> {
        Ok(Event(0))
    }

    fn wait(&self, _: Stream, _: Event) -> Result<()> {
        Ok(())
    }

    fn synchronize(&self, _: Stream) -> Result<()> {
        Ok(())
    }
}

impl Kernels for NumbDevice {
    fn prepare(&self, _: &KernelRequest, _: &[Option<Decoder>]) -> Result<Prepared> {
        Ok(Prepared {
            kernel: Kernel(0),
            workspace_bytes: 0,
        })
    }

    fn launch(&self, _: &Launch<'_>) -> Result<()> {
        fault::at(FaultPoint::LAUNCH);
        Ok(())
    }
}

pub const COMPONENT: Component = Component {
    name: "faulty-backend",
    role: Role::BACKEND,
    doc: "computes nothing",
    options: &[],
    capabilities: &[],
    create: |_, _| Ok(Instance::Backend(Box::new(Numb))),
};
