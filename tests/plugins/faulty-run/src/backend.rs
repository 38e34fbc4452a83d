//! The backend `cpu` of another library, called through.

use std::ptr::NonNull;
use std::sync::Arc;

use espalier_interface::abi::call_site::CallSite;
use espalier_interface::abi::{
    BACKEND_VERSION, BackendProxy, BackendTable, COMPONENT_VERSION, ComponentTable,
    HOST_MEMORY_VERSION, HostMemoryTable, InstanceHandle, PluginRoot,
};
use espalier_interface::{
    Backend, Buffer, BufferRange, Component, Decoder, Device, DeviceInfo, Event, HostMemory,
    Instance, KernelRequest, Kernels, Launch, Memory, MemoryKind, Options, PluginError, Prepared,
    Result, Role, Services, Stream, Streams,
};
use libloading::Library;

use crate::fault;

/// The environment's variable with the path of the library of backend `cpu`.
const CPU: &str = "FAULTY_RUN_CPU";

struct Faulty(BackendProxy);

struct FaultyDevice(Box<dyn Device>);

fn cpu(options: &Options, services: Arc<dyn Services>) -> Result<BackendProxy> {
    let path = std::env::var_os(CPU).ok_or_else(|| PluginError::invalid("no FAULTY_RUN_CPU"))?;
    let failed = |error: libloading::Error| PluginError::invalid(error.to_string());
    let services: &'static dyn Services = &**Box::leak(Box::new(services));
    // SAFETY: the shipped backend's library; its root says what its pointers are.
    unsafe {
        let library = Box::leak(Box::new(Library::new(path).map_err(failed)?));
        let root = library
            .get::<extern "C" fn() -> *const PluginRoot>(b"espalier_root_cpu\0")
            .map_err(failed)?;
        let root = &*root();
        let component = (root.query)("component".into(), COMPONENT_VERSION);
        let component = *component.table.cast::<ComponentTable>();
        let backend = (root.query)("backend".into(), BACKEND_VERSION);
        let backend = *backend.table.cast::<BackendTable>();
        let memory = (root.query)("host_memory".into(), HOST_MEMORY_VERSION);
        let memory = *memory.table.cast::<HostMemoryTable>();
        let site = CallSite::new("cpu", None);
        let handle = InstanceHandle::create(component, root.context, site, options, services)?;
        Ok(BackendProxy::new(handle, backend).lent_by(Some(memory)))
    }
}

impl Backend for Faulty {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        fault::fail_if_due("devices")?;
        self.0.devices()
    }

    fn open(&self, index: u32) -> Result<Box<dyn Device>> {
        fault::fail_if_due("open")?;
        Ok(Box::new(FaultyDevice(self.0.open(index)?)))
    }
}

impl Memory for FaultyDevice {
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer> {
        fault::fail_if_due("alloc")?;
        self.0.alloc(bytes, kind)
    }

    fn free(&self, buffer: Buffer) -> Result<()> {
        fault::fail_if_due("free")?;
        self.0.free(buffer)
    }

    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()> {
        fault::fail_if_due("upload")?;
        self.0.upload(from, to, stream)
    }

    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()> {
        fault::fail_if_due("download")?;
        self.0.download(from, to, stream)
    }

    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()> {
        fault::fail_if_due("copy")?;
        self.0.copy(from, to, stream)
    }

    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        match fault::is("host_address", "none") {
            true => None,
            false => self.0.host_address(range),
        }
    }

    fn import(&self, memory: HostMemory) -> Result<Buffer> {
        fault::fail_if_due("import")?;
        self.0.import(memory)
    }
}

impl Streams for FaultyDevice {
    fn stream(&self) -> Result<Stream> {
        self.0.stream()
    }

    fn record(&self, stream: Stream) -> Result<Event> {
        self.0.record(stream)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.0.wait(stream, event)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        fault::fail_if_due("synchronize")?;
        self.0.synchronize(stream)
    }
}

impl Kernels for FaultyDevice {
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared> {
        fault::fail_if_due("prepare")?;
        let mut made = self.0.prepare(request, decoders)?;
        if fault::is("prepare", "huge") {
            made.workspace_bytes = u64::MAX;
        }
        Ok(made)
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        fault::fail_if_due("launch")?;
        self.0.launch(launch)
    }
}

pub const BACKEND: Component = Component {
    name: "faulty-backend",
    role: Role::BACKEND,
    doc: "the backend `cpu`, until it fails",
    options: &[],
    capabilities: &[],
    create: |options, services| Ok(Instance::Backend(Box::new(Faulty(cpu(options, services)?)))),
};
