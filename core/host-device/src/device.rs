//! The open device: its buffers, its streams and the kernels prepared for it.
//!
//! All work on a stream is done when the call returns. So streams are in order with one another,
//! and events and waits do nothing.

use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use espalier_interface::op::definition;
use espalier_interface::{
    Buffer, BufferRange, Decoder, Event, HostMemory, Kernel, KernelRequest, Kernels, Launch,
    Memory, MemoryKind, PluginError, Prepared, Result, Services, Stream, Streams,
};

use crate::call::{Call, MOST_RANGES};
use crate::memory::Buffers;
use crate::{Asked, Expected, HostOptions, KernelMaker, Made, Setting};

/// The machine, opened by a backend.
pub struct HostDevice {
    services: Arc<dyn Services>,
    maker: Box<dyn KernelMaker>,
    buffers: Buffers,
    /// Folder of mapped files.
    mapped_dir: PathBuf,
    streams: AtomicU64,
    events: AtomicU64,
    /// A slot for each kernel; a released one is empty and used again.
    kernels: RwLock<Vec<Option<Arc<Ready>>>>,
}

/// A prepared kernel.
struct Ready {
    op: String,
    made: Made,
    expected: Vec<Expected>,
    /// Indices of the first param and the first output.
    begins: [usize; 2],
    /// Scalars of each launch.
    scalars: usize,
    max_tokens: u64,
    max_sequences: u64,
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
            services,
            buffers: Buffers::bounded(maker.name(), options.device_memory),
            maker,
            mapped_dir: options.mapped_dir,
            streams: AtomicU64::new(1),
            events: AtomicU64::new(0),
            kernels: RwLock::default(),
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
                self.maker.name()
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

fn check_lengths(from: usize, to: usize) -> Result<()> {
    if from == to {
        Ok(())
    } else {
        Err(PluginError::invalid(format!(
            "{from} bytes copied to a range of {to}"
        )))
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
        let asked = Asked {
            request,
            backend: self.maker.name(),
        };
        let expected = asked.ranges();
        if expected.len() > MOST_RANGES {
            let what = format!("{} ranges, expected at most {MOST_RANGES}", expected.len());
            return Err(asked.unsupported(what));
        }
        let outputs = expected.iter().filter(|one| one.written).count();
        let begins = [request.inputs.len(), expected.len() - outputs];
        let setting = Setting {
            decoders,
            services: &self.services,
        };
        let made = self.maker.prepare(&asked, &setting)?;
        let workspace_bytes = made.workspace_bytes;
        let ready = Ready {
            op: request.op.clone(),
            made,
            expected,
            begins,
            scalars: definition(&request.op, request.version).map_or(0, |op| op.scalars.len()),
            max_tokens: request.max_tokens,
            max_sequences: request.max_sequences,
        };
        let mut kernels = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
        let slot = match kernels.iter().rposition(Option::is_none) {
            Some(empty) => empty,
            None => {
                kernels.push(None);
                kernels.len() - 1
            }
        };
        kernels[slot] = Some(Arc::new(ready));
        Ok(Prepared {
            kernel: Kernel(slot as u64),
            workspace_bytes,
        })
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        self.check_stream(launch.stream)?;
        let kernel = {
            let kernels = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
            kernels.get(launch.kernel.0 as usize).cloned().flatten()
        };
        let Some(kernel) = kernel else {
            let message = format!("kernel {} was not prepared", launch.kernel.0);
            return Err(PluginError::invalid(message));
        };
        self.run(&kernel, launch).map_err(|error| PluginError {
            message: format!("launch of `{}`: {}", kernel.op, error.message),
            ..error
        })
    }

    fn release(&self, kernel: Kernel) -> Result<()> {
        let mut kernels = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
        let slot = kernels.get_mut(kernel.0 as usize);
        match slot.and_then(Option::take) {
            Some(_) => Ok(()),
            None => Err(PluginError::invalid(format!(
                "kernel {} was not prepared, or is released",
                kernel.0
            ))),
        }
    }
}

impl HostDevice {
    fn run(&self, kernel: &Ready, launch: &Launch<'_>) -> Result<()> {
        let invalid = |what: String| Err(PluginError::invalid(what));
        if launch.ranges.len() != kernel.expected.len() {
            let (found, expected) = (launch.ranges.len(), kernel.expected.len());
            return invalid(format!("{found} ranges, expected {expected}"));
        }
        if launch.scalars.len() != kernel.scalars {
            let (found, expected) = (launch.scalars.len(), kernel.scalars);
            return invalid(format!("{found} scalars, expected {expected}"));
        }
        for (what, found, most) in [
            ("tokens", launch.tokens, kernel.max_tokens),
            ("sequences", launch.sequences, kernel.max_sequences),
        ] {
            if found > most {
                return invalid(format!("{found} {what}, prepared for at most {most}"));
            }
        }
        let mut call = Call::new(
            &*self.services,
            [launch.tokens, launch.sequences],
            launch.scalars,
            kernel.begins,
        );
        for (index, (range, expected)) in launch.ranges.iter().zip(&kernel.expected).enumerate() {
            let bytes = expected.bytes(launch.tokens, launch.sequences);
            let Some(bytes) = bytes.filter(|&bytes| bytes <= range.bytes) else {
                return invalid(format!(
                    "{} is {} {:?}: {} bytes, but its range has {}",
                    expected.name,
                    expected.dtype,
                    expected.shape,
                    bytes.map_or("countless".to_owned(), |n| n.to_string()),
                    range.bytes
                ));
            };
            if !range.offset.is_multiple_of(64) {
                let name = &expected.name;
                return invalid(format!(
                    "{name} begins at byte {}, not at 64 n",
                    range.offset
                ));
            }
            call.set(index, self.buffers.span(*range)?, expected, bytes);
        }
        let wanted = kernel.made.workspace_bytes;
        if wanted > 0 {
            if launch.workspace.bytes < wanted || !launch.workspace.offset.is_multiple_of(64) {
                return invalid(format!(
                    "a workspace of {} bytes at byte {}, expected {wanted} at 64 n",
                    launch.workspace.bytes, launch.workspace.offset
                ));
            }
            let range = BufferRange {
                bytes: wanted,
                ..launch.workspace
            };
            call.set_workspace(self.buffers.span(range)?);
        }
        call.check_overlap(kernel.made.overlap)?;
        if kernel.made.temporary_bytes > 0 {
            self.buffers.check_room(kernel.made.temporary_bytes)?;
        }
        (kernel.made.run)(&call)
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;

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
