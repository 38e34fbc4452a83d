//! The plugin's side of the backend's table: each function calls the trait's method and catches
//! panics.

use abi_stable::std_types::{RSlice, RSliceMut};

use super::{BackendTable, DecoderCall, LaunchCall, PreparedReply, RangeCall};
use crate::PluginError;
use crate::abi::Opaque;
use crate::abi::component::instance;
use crate::abi::reply::{Reply, from_bytes, guard};
use crate::declaration::Instance;
use crate::role::{
    Buffer, BufferRange, Decoder, Device, Event, Kernel, KernelRequest, Launch, MemoryKind, Stream,
};

pub(in crate::abi) static BACKEND_TABLE: BackendTable = BackendTable {
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
        request.validate()?;
        let decoders: Vec<Option<Decoder>> = decoders
            .iter()
            .map(|call| {
                (!call.decode.is_null()).then(|| Decoder {
                    context: call.context.cast(),
                    // SAFETY: `BackendProxy::prepare` made the pointer from a function of this
                    // type.
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
