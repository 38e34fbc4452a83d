//! The backend's table: devices, memory, streams and kernels, beside the methods of every component.

pub(super) mod host_memory;

use std::ptr::NonNull;

use abi_stable::StableAbi;
use abi_stable::std_types::{RSlice, RSliceMut};

use super::Opaque;
use super::call_site::CallSite;
use super::component::{InstanceHandle, instance};
use super::reply::{Reply, from_bytes, guard, plain, to_bytes};
use crate::declaration::Instance;
use crate::role::{
    Backend, Buffer, BufferRange, Decoder, Device, DeviceInfo, Event, HostMemory, Kernel,
    KernelRequest, Kernels, Launch, Memory, MemoryKind, Prepared, Stream, Streams,
};
use crate::{PluginError, Result};

pub use host_memory::{HOST_MEMORY_VERSION, HostMemoryTable};

/// Version of [`BackendTable`].
pub const BACKEND_VERSION: u32 = 1;

/// A [`BufferRange`] as it crosses.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct RangeCall {
    buffer: u64,
    offset: u64,
    bytes: u64,
}

/// A [`Decoder`] as it crosses; a null function is none.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct DecoderCall {
    context: Opaque,
    decode: Opaque,
}

/// A [`Launch`] as it crosses.
#[repr(C)]
#[derive(StableAbi)]
pub struct LaunchCall<'a> {
    kernel: u64,
    stream: u64,
    ranges: RSlice<'a, RangeCall>,
    workspace: RangeCall,
    tokens: u64,
    sequences: u64,
    scalars: RSlice<'a, f64>,
}

/// A [`Prepared`] as it crosses.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct PreparedReply {
    kernel: u64,
    workspace_bytes: u64,
}

/// What a backend offers beside its methods; the first argument is a device, but for `open`.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
#[allow(missing_docs)] // each is the trait's method of that name
pub struct BackendTable {
    pub open: extern "C" fn(Opaque, u32) -> Reply<Opaque>,
    pub close: extern "C" fn(Opaque),
    pub alloc: extern "C" fn(Opaque, u64, u32) -> Reply<u64>,
    pub free: extern "C" fn(Opaque, u64) -> Reply<()>,
    pub upload: extern "C" fn(Opaque, RSlice<'_, u8>, RangeCall, u64) -> Reply<()>,
    pub download: extern "C" fn(Opaque, RangeCall, RSliceMut<'_, u8>, u64) -> Reply<()>,
    pub copy: extern "C" fn(Opaque, RangeCall, RangeCall, u64) -> Reply<()>,
    pub host_address: extern "C" fn(Opaque, RangeCall) -> Opaque,
    pub stream: extern "C" fn(Opaque) -> Reply<u64>,
    pub record: extern "C" fn(Opaque, u64) -> Reply<u64>,
    pub wait: extern "C" fn(Opaque, u64, u64) -> Reply<()>,
    pub synchronize: extern "C" fn(Opaque, u64) -> Reply<()>,
    pub prepare:
        extern "C" fn(Opaque, RSlice<'_, u8>, RSlice<'_, DecoderCall>) -> Reply<PreparedReply>,
    pub launch: extern "C" fn(Opaque, LaunchCall<'_>) -> Reply<()>,
}

pub(super) static BACKEND_TABLE: BackendTable = BackendTable {
    open,
    close,
    alloc,
    free,
    upload,
    download,
    copy,
    host_address,
    stream,
    record,
    wait,
    synchronize,
    prepare,
    launch,
};

impl From<BufferRange> for RangeCall {
    fn from(range: BufferRange) -> Self {
        RangeCall {
            buffer: range.buffer.0,
            offset: range.offset,
            bytes: range.bytes,
        }
    }
}

impl From<RangeCall> for BufferRange {
    fn from(range: RangeCall) -> Self {
        BufferRange {
            buffer: Buffer(range.buffer),
            offset: range.offset,
            bytes: range.bytes,
        }
    }
}

type OpenDevice = Box<dyn Device>;

extern "C" fn open(handle: Opaque, index: u32) -> Reply<Opaque> {
    guard(|| match instance(handle) {
        Instance::Backend(backend) => Ok(Box::into_raw(Box::new(backend.open(index)?))
            .cast_const()
            .cast()),
        _ => Err(PluginError::unsupported("this component is not a backend")),
    })
}

extern "C" fn close(device: Opaque) {
    let _ = guard(|| {
        // SAFETY: the host passes each pointer that `open` made exactly once.
        drop(unsafe { Box::from_raw(device.cast_mut().cast::<OpenDevice>()) });
        Ok(())
    });
}

pub(super) fn device<'a>(handle: Opaque) -> &'a dyn Device {
    // SAFETY: `open` made it as a `Box<OpenDevice>`, and the host keeps it until `close`.
    unsafe { (*handle.cast::<OpenDevice>()).as_ref() }
}

extern "C" fn alloc(handle: Opaque, bytes: u64, kind: u32) -> Reply<u64> {
    guard(|| Ok(device(handle).alloc(bytes, MemoryKind(kind))?.0))
}

extern "C" fn free(handle: Opaque, buffer: u64) -> Reply<()> {
    guard(|| device(handle).free(Buffer(buffer)))
}

extern "C" fn upload(handle: Opaque, from: RSlice<'_, u8>, to: RangeCall, on: u64) -> Reply<()> {
    guard(|| device(handle).upload(from.as_slice(), to.into(), Stream(on)))
}

extern "C" fn download(
    handle: Opaque,
    from: RangeCall,
    mut to: RSliceMut<'_, u8>,
    on: u64,
) -> Reply<()> {
    guard(|| device(handle).download(from.into(), to.as_mut_slice(), Stream(on)))
}

extern "C" fn copy(handle: Opaque, from: RangeCall, to: RangeCall, on: u64) -> Reply<()> {
    guard(|| device(handle).copy(from.into(), to.into(), Stream(on)))
}

extern "C" fn host_address(handle: Opaque, range: RangeCall) -> Opaque {
    let address = guard(|| Ok(device(handle).host_address(range.into())));
    match address.into_result() {
        Ok(Some(address)) => address.as_ptr().cast_const().cast(),
        _ => std::ptr::null(),
    }
}

extern "C" fn stream(handle: Opaque) -> Reply<u64> {
    guard(|| Ok(device(handle).stream()?.0))
}

extern "C" fn record(handle: Opaque, on: u64) -> Reply<u64> {
    guard(|| Ok(device(handle).record(Stream(on))?.0))
}

extern "C" fn wait(handle: Opaque, on: u64, event: u64) -> Reply<()> {
    guard(|| device(handle).wait(Stream(on), Event(event)))
}

extern "C" fn synchronize(handle: Opaque, on: u64) -> Reply<()> {
    guard(|| device(handle).synchronize(Stream(on)))
}

type DecodeFn =
    extern "C" fn(*const (), *const *const u8, *const usize, usize, *const u64, *mut f32) -> u32;

extern "C" fn prepare(
    handle: Opaque,
    request: RSlice<'_, u8>,
    decoders: RSlice<'_, DecoderCall>,
) -> Reply<PreparedReply> {
    guard(|| {
        let request: KernelRequest = from_bytes(request.as_slice())?;
        let decoders: Vec<Option<Decoder>> = decoders
            .iter()
            .map(|call| {
                (!call.decode.is_null()).then(|| Decoder {
                    context: call.context.cast(),
                    // SAFETY: `BackendProxy::prepare` made the pointer from a function of this type.
                    decode: unsafe { std::mem::transmute::<Opaque, DecodeFn>(call.decode) },
                })
            })
            .collect();
        let made = device(handle).prepare(&request, &decoders)?;
        Ok(PreparedReply {
            kernel: made.kernel.0,
            workspace_bytes: made.workspace_bytes,
        })
    })
}

extern "C" fn launch(handle: Opaque, call: LaunchCall<'_>) -> Reply<()> {
    guard(|| {
        // SAFETY: `RangeCall` and `BufferRange` are both `repr(C)` of the same three u64.
        let ranges: &[BufferRange] =
            unsafe { std::slice::from_raw_parts(call.ranges.as_ptr().cast(), call.ranges.len()) };
        device(handle).launch(&Launch {
            kernel: Kernel(call.kernel),
            stream: Stream(call.stream),
            ranges,
            workspace: call.workspace.into(),
            tokens: call.tokens,
            sequences: call.sequences,
            scalars: call.scalars.as_slice(),
        })
    })
}

/// A backend behind the boundary.
pub struct BackendProxy {
    handle: InstanceHandle,
    table: BackendTable,
    host_memory: Option<HostMemoryTable>,
}

impl BackendProxy {
    /// A backend made of an instance and its table.
    pub fn new(handle: InstanceHandle, table: BackendTable) -> Self {
        BackendProxy {
            handle,
            table,
            host_memory: None,
        }
    }

    /// With the table by which its devices take memory of the host's, if it has one.
    #[must_use]
    pub fn lent_by(mut self, table: Option<HostMemoryTable>) -> Self {
        self.host_memory = table;
        self
    }
}

impl Backend for BackendProxy {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.handle.call("devices", &())
    }

    fn open(&self, index: u32) -> Result<Box<dyn Device>> {
        let _inside = self.handle.site.enter("open");
        let raw = plain((self.table.open)(self.handle.raw, index))?;
        Ok(Box::new(DeviceProxy {
            table: self.table,
            host_memory: self.host_memory,
            raw,
            site: self.handle.site,
        }))
    }
}

/// A device behind the boundary. Its backend must outlive it: the registry keeps backends for the whole run.
struct DeviceProxy {
    table: BackendTable,
    host_memory: Option<HostMemoryTable>,
    raw: Opaque,
    site: &'static CallSite,
}

// SAFETY: `Device` is Send and Sync.
unsafe impl Send for DeviceProxy {}
// SAFETY: as above.
unsafe impl Sync for DeviceProxy {}

impl Drop for DeviceProxy {
    fn drop(&mut self) {
        let _inside = self.site.enter("close");
        (self.table.close)(self.raw);
    }
}

impl Memory for DeviceProxy {
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer> {
        let _inside = self.site.enter("alloc");
        plain((self.table.alloc)(self.raw, bytes, kind.0)).map(Buffer)
    }

    fn free(&self, buffer: Buffer) -> Result<()> {
        let _inside = self.site.enter("free");
        plain((self.table.free)(self.raw, buffer.0))
    }

    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()> {
        let _inside = self.site.enter("upload");
        plain((self.table.upload)(
            self.raw,
            from.into(),
            to.into(),
            stream.0,
        ))
    }

    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()> {
        let _inside = self.site.enter("download");
        plain((self.table.download)(
            self.raw,
            from.into(),
            to.into(),
            stream.0,
        ))
    }

    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()> {
        let _inside = self.site.enter("copy");
        plain((self.table.copy)(
            self.raw,
            from.into(),
            to.into(),
            stream.0,
        ))
    }

    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        let _inside = self.site.enter("host_address");
        let address = (self.table.host_address)(self.raw, range.into());
        NonNull::new(address.cast_mut().cast())
    }

    fn import(&self, memory: HostMemory) -> Result<Buffer> {
        let Some(table) = &self.host_memory else {
            let message = format!(
                "`{}` was built before backends could take memory of the host's",
                self.site.component()
            );
            return Err(PluginError::unsupported(message));
        };
        let _inside = self.site.enter("import");
        table.lend(self.raw, memory)
    }
}

impl Streams for DeviceProxy {
    fn stream(&self) -> Result<Stream> {
        let _inside = self.site.enter("stream");
        plain((self.table.stream)(self.raw)).map(Stream)
    }

    fn record(&self, stream: Stream) -> Result<Event> {
        let _inside = self.site.enter("record");
        plain((self.table.record)(self.raw, stream.0)).map(Event)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        let _inside = self.site.enter("wait");
        plain((self.table.wait)(self.raw, stream.0, event.0))
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        let _inside = self.site.enter("synchronize");
        plain((self.table.synchronize)(self.raw, stream.0))
    }
}

impl Kernels for DeviceProxy {
    fn prepare(&self, request: &KernelRequest, decoders: &[Option<Decoder>]) -> Result<Prepared> {
        let request = to_bytes(request)?;
        let decoders: Vec<DecoderCall> = decoders
            .iter()
            .map(|decoder| match decoder {
                Some(decoder) => DecoderCall {
                    context: decoder.context.cast(),
                    decode: decoder.decode as Opaque,
                },
                None => DecoderCall {
                    context: std::ptr::null(),
                    decode: std::ptr::null(),
                },
            })
            .collect();
        let decoders = decoders.as_slice().into();
        let _inside = self.site.enter("prepare");
        let made = plain((self.table.prepare)(
            self.raw,
            request.as_rslice(),
            decoders,
        ))?;
        Ok(Prepared {
            kernel: Kernel(made.kernel),
            workspace_bytes: made.workspace_bytes,
        })
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        // SAFETY: `RangeCall` and `BufferRange` are both `repr(C)` of the same three u64.
        let ranges: &[RangeCall] = unsafe {
            std::slice::from_raw_parts(launch.ranges.as_ptr().cast(), launch.ranges.len())
        };
        let _inside = self.site.enter("launch");
        plain((self.table.launch)(
            self.raw,
            LaunchCall {
                kernel: launch.kernel.0,
                stream: launch.stream.0,
                ranges: ranges.into(),
                workspace: launch.workspace.into(),
                tokens: launch.tokens,
                sequences: launch.sequences,
                scalars: launch.scalars.into(),
            },
        ))
    }
}
