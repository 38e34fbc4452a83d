//! The trial of streams: devices that finish now or later pass it, and a record, wait, query or
//! free event that does not do what it says is found.
#![cfg(feature = "embedded")]

use std::ptr::NonNull;
use std::sync::Arc;

use espalier_backend_cpu::CpuBackend;
use espalier_config::{Sources, resolve};
use espalier_conformance::{Checked, Fault, Threads, streams};
use espalier_interface::{
    Backend, Buffer, BufferRange, Decoder, Device, Event, HostMemory, Kernel, KernelRequest,
    Kernels, Launch, Memory, MemoryKind, Prepared, Result, Serial, Services, Stream, Streams,
};
use espalier_registry::{Registry, SearchPath};
use espalier_tests as _;
use serde_json::{Map, Value as Json, json};

static SERVICES: &dyn Services = &Serial;

/// A device of `late` with options, and the backend that it needs.
fn late(options: &[(&str, Json)]) -> (Box<dyn Backend>, Box<dyn Device>) {
    let place = tempfile::tempdir().expect("a folder");
    let (folder, library) = (place.path(), espalier_samples::library("late"));
    let name = library.file_name().expect("a file");
    std::fs::copy(&library, folder.join(name)).expect("copied");
    let sources = Sources::default().set(format!("run.plugin_dirs=[{folder:?}]"));
    let resolved = resolve(&sources).expect("a config");
    let registry = Registry::discover(&SearchPath::of(&resolved));
    let options = options.iter();
    let options: Map<String, Json> = options
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    let (backend, _) = registry
        .create_backend("late", &options, SERVICES)
        .expect("it was just built");
    let device = backend.open(0).expect("a device");
    (backend, device)
}

/// Both checks of the trial.
fn trial(device: &dyn Device) -> [Checked; 2] {
    [streams::chains(device), streams::reads(device)]
}

#[test]
fn cpu_passes() {
    let cpu = CpuBackend::new(Arc::new(Threads::new(2)));
    let device = cpu.open(0).expect("the machine");
    assert_eq!(trial(device.as_ref()), [Ok(()), Ok(())]);
}

#[test]
fn late_passes_in_every_order() {
    for (order, seed) in [
        ("late", 0),
        ("early", 0),
        ("mixed", 1),
        ("mixed", 2),
        ("mixed", 3),
    ] {
        let (_backend, device) = late(&[("order", json!(order)), ("seed", json!(seed))]);
        assert_eq!(trial(device.as_ref()), [Ok(()), Ok(())], "{order} {seed}");
    }
}

/// Without the device's own report of races, by the elements alone.
#[test]
fn a_record_or_wait_that_is_dropped_changes_elements_in_some_order() {
    for option in ["drop_record", "drop_wait"] {
        for number in [1, 2, 5, 9] {
            let in_order = |order: &str| {
                let (_backend, device) = late(&[
                    ("order", json!(order)),
                    ("races", json!("count")),
                    (option, json!(number)),
                ]);
                streams::chains(device.as_ref())
            };
            // The first records are those with which the trial begins: the host waits for them.
            let found = ["late", "early"].map(in_order);
            let words = found.iter().filter_map(|found| match found {
                Err(Fault::Failed(reason)) => Some(reason.as_str()),
                _ => None,
            });
            let words: Vec<&str> = words.collect();
            let begins = option == "drop_record" && number <= 2;
            assert_eq!(words.is_empty(), begins, "{option} {number}: {found:?}");
        }
    }
}

/// What a device does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deaf {
    /// `wait` does nothing.
    Wait,
    /// `query` says yes at once.
    Query,
    /// `synchronize` returns at once.
    Synchronize,
    /// A stream that is waited for is forgotten with its event.
    FreeEvent,
}

/// A device that is deaf to one call.
struct DeafDevice {
    device: Box<dyn Device>,
    deaf: Deaf,
    /// Waits that are made when the next work is put on their stream.
    held: std::sync::Mutex<Vec<(Stream, Event)>>,
}

impl DeafDevice {
    /// Makes the waits of `stream` whose events are not freed.
    fn make_waits(&self, stream: Stream) -> Result<()> {
        let mut held = self.held.lock().expect("no panic");
        let (now, later) = held.drain(..).partition(|(of, _)| *of == stream);
        *held = later;
        let now: Vec<(Stream, Event)> = now;
        now.into_iter()
            .try_for_each(|(stream, event)| self.device.wait(stream, event))
    }
}

impl Memory for DeafDevice {
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer> {
        self.device.alloc(bytes, kind)
    }
    fn free(&self, buffer: Buffer) -> Result<()> {
        self.device.free(buffer)
    }
    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()> {
        self.make_waits(stream)?;
        self.device.upload(from, to, stream)
    }
    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()> {
        self.make_waits(stream)?;
        self.device.download(from, to, stream)
    }
    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()> {
        self.make_waits(stream)?;
        self.device.copy(from, to, stream)
    }
    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        self.device.host_address(range)
    }
    fn import(&self, memory: HostMemory) -> Result<Buffer> {
        self.device.import(memory)
    }
}

impl Streams for DeafDevice {
    fn stream(&self) -> Result<Stream> {
        self.device.stream()
    }
    fn record(&self, stream: Stream) -> Result<Event> {
        self.device.record(stream)
    }
    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        match self.deaf {
            Deaf::Wait => Ok(()),
            Deaf::FreeEvent => {
                self.held.lock().expect("no panic").push((stream, event));
                Ok(())
            }
            _ => self.device.wait(stream, event),
        }
    }
    fn synchronize(&self, stream: Stream) -> Result<()> {
        match self.deaf {
            Deaf::Synchronize => Ok(()),
            _ => self.device.synchronize(stream),
        }
    }
    fn query(&self, event: Event) -> Result<bool> {
        match self.deaf {
            Deaf::Query => Ok(true),
            _ => self.device.query(event),
        }
    }
    fn free_event(&self, event: Event) -> Result<()> {
        let mut held = self.held.lock().expect("no panic");
        held.retain(|(_, one)| *one != event);
        self.device.free_event(event)
    }
}

impl Kernels for DeafDevice {
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared> {
        self.device.prepare(request, decoders)
    }
    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        self.make_waits(launch.stream)?;
        self.device.launch(launch)
    }
    fn release(&self, kernel: Kernel) -> Result<()> {
        self.device.release(kernel)
    }
}

#[test]
fn a_backend_that_is_deaf_to_a_call_is_found() {
    for deaf in [Deaf::Wait, Deaf::Query, Deaf::Synchronize, Deaf::FreeEvent] {
        let (_backend, device) = late(&[("races", json!("count"))]);
        let device = DeafDevice {
            device,
            deaf,
            held: std::sync::Mutex::default(),
        };
        let found = trial(&device);
        let failed = |found: &Checked| matches!(found, Err(Fault::Failed(_)));
        assert!(found.iter().any(failed), "{deaf:?}: {found:?}");
    }
}
