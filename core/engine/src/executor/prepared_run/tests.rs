//! Whether collective calls pass through pinned memory, by what a device gives addresses of.

use std::ptr::NonNull;
use std::sync::Mutex;

use espalier_interface::{
    Buffer, Decoder, Event, Kernel, KernelRequest, Kernels, Launch, Memory, Prepared,
    Result as PluginResult, Stream, Streams,
};

use super::*;

/// A device that gives addresses of some kinds of memory.
struct Addressed {
    kinds: Vec<MemoryKind>,
    /// The kind of each buffer that is not freed.
    live: Mutex<Vec<(Buffer, MemoryKind)>>,
}

const UNUSED: &str = "only memory is asked for";

impl Memory for Addressed {
    fn alloc(&self, _: u64, kind: MemoryKind) -> PluginResult<Buffer> {
        let mut live = self.live.lock().expect("no panic");
        let buffer = Buffer(live.len() as u64);
        live.push((buffer, kind));
        Ok(buffer)
    }
    fn free(&self, buffer: Buffer) -> PluginResult<()> {
        let mut live = self.live.lock().expect("no panic");
        live.retain(|(one, _)| *one != buffer);
        Ok(())
    }
    fn upload(&self, _: &[u8], _: BufferRange, _: Stream) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
    fn download(&self, _: BufferRange, _: &mut [u8], _: Stream) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
    fn copy(&self, _: BufferRange, _: BufferRange, _: Stream) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        let live = self.live.lock().expect("no panic");
        let (_, kind) = live.iter().find(|(one, _)| *one == range.buffer)?;
        self.kinds.contains(kind).then(NonNull::dangling)
    }
}

impl Kernels for Addressed {
    fn prepare(&self, _: &KernelRequest, _: &[Option<Decoder>]) -> PluginResult<Prepared> {
        unreachable!("{UNUSED}")
    }
    fn launch(&self, _: &Launch<'_>) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
    fn release(&self, _: Kernel) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
}

impl Streams for Addressed {
    fn stream(&self) -> PluginResult<Stream> {
        unreachable!("{UNUSED}")
    }
    fn record(&self, _: Stream) -> PluginResult<Event> {
        unreachable!("{UNUSED}")
    }
    fn wait(&self, _: Stream, _: Event) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
    fn synchronize(&self, _: Stream) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
}

/// What is decided of a device that shares the host's memory, or does not, and gives addresses of
/// these kinds.
fn decided(shares_host_memory: bool, kinds: &[MemoryKind]) -> Result<bool, Error> {
    let device = Addressed {
        kinds: kinds.to_vec(),
        live: Mutex::default(),
    };
    let info = DeviceInfo {
        name: "test".to_owned(),
        description: String::new(),
        memory_bytes: 1 << 30,
        free_bytes: 1 << 30,
        instruction_set: String::new(),
        shares_host_memory,
        exact_memory: true,
        head_chunk_bytes: None,
    };
    let decided = stages_calls(&device, &info);
    assert_eq!(device.live.lock().expect("no panic").len(), 0);
    decided
}

#[test]
fn calls_pass_through_pinned_memory_where_the_devices_has_no_address() {
    let both = [MemoryKind::DEVICE, MemoryKind::PINNED];
    assert!(matches!(decided(true, &both), Ok(false)));
    assert!(matches!(decided(false, &both), Ok(true)));
    // It shares its memory, and does not say where it is.
    assert!(matches!(decided(true, &[MemoryKind::PINNED]), Ok(true)));
}

#[test]
fn a_device_that_gives_no_address_at_all_is_refused_before_anything_is_loaded() {
    for shares in [true, false] {
        let refused = decided(shares, &[]).expect_err("nothing reaches its memory");
        let Error::Plugin(failure) = refused else {
            panic!("{refused}")
        };
        let words = "a device whose memory the host does not reach";
        assert!(failure.source.message.contains(words), "{failure:?}");
    }
}
