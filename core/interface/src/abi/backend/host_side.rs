//! The host's side of the backend's table: proxies that implement the traits of a backend and its
//! devices.

use std::ptr::NonNull;

use super::{
    BackendTable, CompletionTable, DecoderCall, HostMemoryTable, LaunchCall, NativeTable, RangeCall,
};
use crate::abi::Opaque;
use crate::abi::call_site::CallSite;
use crate::abi::component::InstanceHandle;
use crate::abi::reply::{plain, to_bytes};
use crate::role::{
    Backend, Buffer, BufferRange, Decoder, Device, DeviceInfo, Event, HostMemory, Kernel,
    KernelRequest, Kernels, Launch, Memory, MemoryKind, OpId, Prepared, Stream, Streams,
};
use crate::{ErrorCode, PluginError, Result};

/// A backend on the plugin's side of the boundary.
pub struct BackendProxy {
    handle: InstanceHandle,
    table: BackendTable,
    host_memory: Option<HostMemoryTable>,
    completion: Option<CompletionTable>,
    native: Option<NativeTable>,
}

impl BackendProxy {
    /// A backend made of an instance and its table.
    pub fn new(handle: InstanceHandle, table: BackendTable) -> Self {
        BackendProxy {
            handle,
            table,
            host_memory: None,
            completion: None,
            native: None,
        }
    }

    /// Adds the table through which its devices take host memory, if it has one.
    #[must_use]
    pub fn lent_by(mut self, table: Option<HostMemoryTable>) -> Self {
        self.host_memory = table;
        self
    }

    /// Adds the table through which its devices say what is complete, if it has one.
    #[must_use]
    pub fn completed_by(mut self, table: Option<CompletionTable>) -> Self {
        self.completion = table;
        self
    }

    /// Adds the table through which other libraries use its devices, if it has one.
    #[must_use]
    pub fn named_by(mut self, table: Option<NativeTable>) -> Self {
        self.native = table;
        self
    }
}

impl Backend for BackendProxy {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.handle.call("devices", &())
    }

    fn ops(&self) -> Result<Option<Vec<OpId>>> {
        match self.handle.call("ops", &()) {
            // Built before backends could say it.
            Err(error) if error.code == ErrorCode::UNSUPPORTED => Ok(None),
            listed => listed,
        }
    }

    fn open(&self, index: u32) -> Result<Box<dyn Device>> {
        let _inside = self.handle.site.enter("open");
        let raw = plain((self.table.open)(self.handle.raw, index))?;
        Ok(Box::new(DeviceProxy {
            table: self.table,
            host_memory: self.host_memory,
            completion: self.completion,
            native: self.native,
            raw,
            site: self.handle.site,
        }))
    }
}

/// A device on the plugin's side of the boundary. Its backend must outlive it: the registry keeps
/// backends for the whole run.
struct DeviceProxy {
    table: BackendTable,
    host_memory: Option<HostMemoryTable>,
    completion: Option<CompletionTable>,
    native: Option<NativeTable>,
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

    fn native_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        let table = self.native.as_ref()?;
        let _inside = self.site.enter("native_address");
        table.address_of(self.raw, range)
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

    fn query(&self, event: Event) -> Result<bool> {
        let Some(table) = &self.completion else {
            return Ok(true);
        };
        let _inside = self.site.enter("query");
        table.is_complete(self.raw, event)
    }

    fn free_event(&self, event: Event) -> Result<()> {
        let Some(table) = &self.completion else {
            return Ok(());
        };
        let _inside = self.site.enter("free_event");
        table.free(self.raw, event)
    }

    fn native_stream(&self, stream: Stream) -> Option<NonNull<()>> {
        let table = self.native.as_ref()?;
        let _inside = self.site.enter("native_stream");
        table.handle_of(self.raw, stream)
    }

    fn native_device(&self) -> Option<u32> {
        let table = self.native.as_ref()?;
        let _inside = self.site.enter("native_device");
        table.number_of(self.raw)
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

    fn release(&self, kernel: Kernel) -> Result<()> {
        let Some(table) = &self.completion else {
            return Ok(());
        };
        let _inside = self.site.enter("release");
        table.release_kernel(self.raw, kernel)
    }
}
