//! The open device: its buffers, its streams and the kernels prepared for it.
//!
//! All work on a stream is done when the call returns. So streams are in order with one another,
//! and events and waits do nothing.

use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use espalier_interface::{
    Buffer, BufferRange, Decoder, Event, HostMemory, Kernel, KernelRequest, Kernels, Launch,
    Memory, MemoryKind, PluginError, Prepared, Result, Services, Stream, Streams,
};

use crate::memory::Buffers;
use crate::span::check_lengths;
use crate::{HostOptions, KernelMaker, LaunchMemory, PreparedKernels};

/// The machine, opened by a backend.
pub struct HostDevice {
    buffers: Buffers,
    /// Folder of mapped files.
    mapped_dir: PathBuf,
    streams: AtomicU64,
    events: AtomicU64,
    kernels: PreparedKernels,
}

impl HostDevice {
    /// A device whose kernels `maker` makes, on the host's threads and with the memory that
    /// `options` give it.
    pub fn new(
        maker: Box<dyn KernelMaker>,
        services: Arc<dyn Services>,
        options: HostOptions,
    ) -> Self {
        HostDevice {
            buffers: Buffers::bounded(maker.name(), options.device_memory),
            mapped_dir: options.mapped_dir,
            streams: AtomicU64::new(1),
            events: AtomicU64::new(0),
            kernels: PreparedKernels::new(maker, services),
        }
    }

    fn check_stream(&self, stream: Stream) -> Result<()> {
        if stream.0 < self.streams.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(PluginError::invalid(format!(
                "stream {} does not exist",
                stream.0
            )))
        }
    }
}

impl Memory for HostDevice {
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer> {
        match kind {
            MemoryKind::DEVICE => self.buffers.alloc_of_device(bytes),
            MemoryKind::PINNED => self.buffers.alloc(bytes),
            MemoryKind::MAPPED => self.buffers.alloc_mapped(bytes, &self.mapped_dir),
            MemoryKind(other) => Err(PluginError::unsupported(format!(
                "backend `{}` has no memory of kind {other}",
                self.kernels.backend()
            ))),
        }
    }

    fn free(&self, buffer: Buffer) -> Result<()> {
        self.buffers.free(buffer)
    }

    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()> {
        self.check_stream(stream)?;
        let to = self.buffers.span(to)?;
        check_lengths(from.len(), to.bytes)?;
        to.fill(from);
        Ok(())
    }

    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()> {
        self.check_stream(stream)?;
        let from = self.buffers.span(from)?;
        check_lengths(from.bytes, to.len())?;
        from.read(to);
        Ok(())
    }

    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()> {
        self.check_stream(stream)?;
        let (from, to) = (self.buffers.span(from)?, self.buffers.span(to)?);
        check_lengths(from.bytes, to.bytes)?;
        from.copy(&to);
        Ok(())
    }

    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        self.buffers.span(range).ok().map(|span| span.start)
    }

    fn import(&self, memory: HostMemory) -> Result<Buffer> {
        self.buffers.lend(memory)
    }
}

impl Streams for HostDevice {
    fn stream(&self) -> Result<Stream> {
        Ok(Stream(self.streams.fetch_add(1, Ordering::AcqRel)))
    }

    fn record(&self, stream: Stream) -> Result<Event> {
        self.check_stream(stream)?;
        Ok(Event(self.events.fetch_add(1, Ordering::AcqRel)))
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.check_stream(stream)?;
        if event.0 < self.events.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(PluginError::invalid(format!(
                "event {} does not exist",
                event.0
            )))
        }
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.check_stream(stream)
    }
}

impl Kernels for HostDevice {
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared> {
        self.kernels.prepare(request, decoders)
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        self.check_stream(launch.stream)?;
        self.kernels.launch(launch, &self.buffers)
    }

    fn release(&self, kernel: Kernel) -> Result<()> {
        self.kernels.release(kernel)
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;
    use crate::{Asked, Made, Setting};

    /// Makes kernels that do nothing, and say that a library takes that many bytes in each.
    struct Idle(u64);

    impl KernelMaker for Idle {
        fn name(&self) -> &str {
            "idle"
        }

        fn prepare(&self, _: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
            Ok(Made::new(|_| Ok(())).with_temporaries(self.0))
        }
    }

    fn idle(temporary_bytes: u64) -> HostDevice {
        let options = HostOptions {
            device_memory: Some(1000),
            ..HostOptions::default()
        };
        HostDevice::new(Box::new(Idle(temporary_bytes)), Arc::new(Serial), options)
    }

    #[test]
    fn a_launch_whose_temporaries_have_no_room_is_refused() {
        for (temporary_bytes, fits) in [(0, true), (400, true), (401, false)] {
            let device = idle(temporary_bytes);
            let buffer = device.alloc(600, MemoryKind::DEVICE).unwrap();
            let prepared = device.prepare(&KernelRequest::new("zero"), &[]).unwrap();
            let range = BufferRange {
                buffer,
                offset: 0,
                bytes: 0,
            };
            let launched = device.launch(&Launch {
                kernel: prepared.kernel,
                stream: Stream(0),
                ranges: &[],
                workspace: range,
                tokens: 0,
                sequences: 0,
                scalars: &[],
            });
            match launched {
                Ok(()) => assert!(fits, "{temporary_bytes} bytes"),
                Err(error) => {
                    assert!(!fits, "{error}");
                    assert_eq!(error.code, espalier_interface::ErrorCode::OUT_OF_MEMORY);
                    let words = "launch of `zero`: 401 bytes of temporary tensors: only 400 bytes";
                    assert!(error.message.starts_with(words), "{error}");
                }
            }
        }
    }

    #[test]
    fn streams_and_events_must_exist() {
        let device = idle(0);
        let side = device.stream().unwrap();
        let event = device.record(Stream(0)).unwrap();
        device.wait(side, event).unwrap();
        device.synchronize(side).unwrap();
        assert!(device.record(Stream(side.0 + 1)).is_err());
        let error = device.wait(side, Event(event.0 + 1)).unwrap_err();
        assert_eq!(error.message, "event 1 does not exist");
    }

    #[test]
    fn copies_need_equal_lengths_within_buffers() {
        let device = idle(0);
        let buffer = device.alloc(8, MemoryKind::PINNED).unwrap();
        let range = |offset, bytes| BufferRange {
            buffer,
            offset,
            bytes,
        };
        device
            .upload(&[1, 2, 3, 4], range(0, 4), Stream(0))
            .unwrap();
        device.copy(range(0, 4), range(2, 4), Stream(0)).unwrap();
        let mut found = [9; 8];
        device.download(range(0, 8), &mut found, Stream(0)).unwrap();
        assert_eq!(found, [1, 2, 1, 2, 3, 4, 0, 0]);
        let error = device.upload(&[1], range(0, 2), Stream(0)).unwrap_err();
        assert_eq!(error.message, "1 bytes copied to a range of 2");
        assert!(device.copy(range(6, 4), range(0, 4), Stream(0)).is_err());
        assert!(device.host_address(range(4, 4)).is_some());
        assert!(device.host_address(range(4, 5)).is_none());
        let error = device.alloc(8, MemoryKind(9)).unwrap_err();
        assert!(error.message.contains("kind 9"), "{error}");
    }
}
