//! The checks of compute backends: devices, memory, streams, and each op against its oracle.

use std::ptr::NonNull;

use espalier_interface::{
    Backend, Buffer, BufferRange, Device, ErrorCode, Event, HostMemory, KernelRequest, MemoryKind,
    PluginError, Stream,
};

use crate::checked::{Checked, Fault, ensure, refusal};
use crate::ops;
use crate::{Subject, Suite, Threads, declared, streams as trial};

/// Bytes of the buffers under test: some hundred KiB, and a multiple of no alignment.
const BYTES: u64 = 300_007;

/// Runs all checks of a backend.
pub fn backend(subject: &Subject<'_, dyn Backend>, suite: &mut Suite) {
    declared::check(&subject.component, suite);
    suite.check(
        "devices.found",
        "it says what devices there are, and refuses one that is not",
        || {
            let backend = make(subject)?;
            let devices = backend.devices()?;
            for device in &devices {
                ensure(!device.name.is_empty() && device.memory_bytes > 0, || {
                    format!("a device without a name or memory: {device:?}")
                })?;
            }
            match backend.open(devices.len() as u32 + 7) {
                Ok(_) => Err(Fault::Failed(
                    "it opened a device that is not there".to_owned(),
                )),
                Err(error) => refusal(&error),
            }
        },
    );
    for (name, asserts, body) in CHECKS {
        suite.check(name, asserts, || on_device(subject, body));
    }
    for op in ops::all() {
        suite.check(op.name, op.asserts, || {
            on_device(subject, |device| ops::check(device, op))
        });
    }
}

/// Runs `body` on the first device.
fn on_device(
    subject: &Subject<'_, dyn Backend>,
    body: impl FnOnce(&dyn Device) -> Checked,
) -> Checked {
    // The backend outlives its device.
    let backend = make(subject)?;
    if backend.devices()?.is_empty() {
        return Err(Fault::Skipped("it has no device here".to_owned()));
    }
    let device = backend.open(0)?;
    body(device.as_ref())
}

type OnDevice = fn(&dyn Device) -> Checked;

const CHECKS: [(&str, &str, OnDevice); 8] = [
    (
        "memory.zeros",
        "a new buffer holds zeros, is 64-byte aligned where the host can see it, and does not overlap others",
        zeros,
    ),
    (
        "memory.copies",
        "bytes that are uploaded, copied and downloaded are the bytes that come back, at any offset",
        copies,
    ),
    (
        "memory.refused",
        "ranges outside a buffer, other lengths, freed buffers and absurd sizes are rejected with a message",
        refused,
    ),
    (
        "memory.lent",
        "memory of the host's that it is lent is a buffer like others, and stays the host's when it is given back",
        lent,
    ),
    (
        "streams.order",
        "streams and events are made and waited for; those that do not exist are rejected with a message",
        streams,
    ),
    (
        "streams.chains",
        "tasks of several streams that events alone order give what they give one after the other",
        trial::chains,
    ),
    (
        "streams.reads",
        "the host reads what is there once an event, a stream or a download says so",
        trial::reads,
    ),
    (
        "prepare.refused",
        "an op that no backend has is UNSUPPORTED, by name",
        unknown_op,
    ),
];

fn make(subject: &Subject<'_, dyn Backend>) -> Checked<Box<dyn Backend>> {
    Ok(subject.make(&subject.option_sets()[0].options, Threads::new(2))?)
}

fn whole(buffer: Buffer) -> BufferRange {
    part(buffer, 0, BYTES)
}

fn part(buffer: Buffer, offset: u64, bytes: u64) -> BufferRange {
    BufferRange {
        buffer,
        offset,
        bytes,
    }
}

fn zeros(device: &dyn Device) -> Checked {
    for kind in [MemoryKind::DEVICE, MemoryKind::PINNED] {
        let first = device.alloc(BYTES, kind)?;
        let second = device.alloc(BYTES, kind)?;
        ensure(first != second, || "two buffers have one name".into())?;
        let mut found = vec![1; BYTES as usize];
        device.download(whole(first), &mut found, Stream(0))?;
        let place = found.iter().position(|&byte| byte != 0);
        ensure(place.is_none(), || {
            format!("byte {place:?} of a new buffer is not zero")
        })?;
        if let Some(address) = device.host_address(whole(first)) {
            ensure(address.as_ptr().align_offset(64) == 0, || {
                "a buffer is not 64-byte aligned".into()
            })?;
        }
        device.free(first)?;
        device.free(second)?;
    }
    Ok(())
}

fn pattern(bytes: u64, seed: u64) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at.wrapping_mul(167).wrapping_add(seed) >> 3) as u8)
        .collect()
}

fn copies(device: &dyn Device) -> Checked {
    let (from, to) = (
        device.alloc(BYTES, MemoryKind::DEVICE)?,
        device.alloc(BYTES, MemoryKind::DEVICE)?,
    );
    let sent = pattern(BYTES, 1);
    device.upload(&sent, whole(from), Stream(0))?;
    for (offset, bytes) in [(0, BYTES), (64, 1), (128, 4097), (BYTES - 7, 7)] {
        device.copy(
            part(from, offset, bytes),
            part(to, offset, bytes),
            Stream(0),
        )?;
        device.synchronize(Stream(0))?;
        let mut found = vec![0; bytes as usize];
        device.download(part(to, offset, bytes), &mut found, Stream(0))?;
        let expected = &sent[offset as usize..(offset + bytes) as usize];
        ensure(found == expected, || {
            format!("{bytes} bytes from {offset} on came back as others")
        })?;
    }
    device.free(from)?;
    Ok(device.free(to)?)
}

/// Fails where an absurd request succeeded.
fn expect_refusal<T>(done: Result<T, PluginError>, what: &str) -> Checked {
    match done {
        Ok(_) => Err(Fault::Failed(format!("{what} was done, expected an error"))),
        Err(error) => refusal(&error).map_err(|fault| fault.at(what)),
    }
}

fn refused(device: &dyn Device) -> Checked {
    let buffer = device.alloc(BYTES, MemoryKind::DEVICE)?;
    let other = device.alloc(BYTES, MemoryKind::DEVICE)?;
    let mut bytes = vec![0; 64];
    for (offset, what) in [
        (BYTES - 63, "a range that ends beyond its buffer"),
        (u64::MAX - 32, "a range whose end overflows"),
    ] {
        let beyond = part(buffer, offset, 64);
        expect_refusal(device.upload(&bytes, beyond, Stream(0)), what)?;
        expect_refusal(device.download(beyond, &mut bytes, Stream(0)), what)?;
        expect_refusal(device.copy(beyond, part(other, 0, 64), Stream(0)), what)?;
    }
    let unequal = device.copy(part(buffer, 0, 64), part(other, 0, 128), Stream(0));
    expect_refusal(unequal, "a copy to another length")?;
    expect_refusal(
        device.alloc(1 << 62, MemoryKind::DEVICE),
        "a buffer of 2^62 bytes",
    )?;
    device.free(buffer)?;
    let what = "a freed buffer";
    expect_refusal(device.upload(&bytes, part(buffer, 0, 64), Stream(0)), what)?;
    expect_refusal(device.free(buffer), what)?;
    Ok(device.free(other)?)
}

/// Host memory: bytes from a multiple of 64 on, and 64 readable bytes after them.
struct Lent {
    memory: Vec<u8>,
    begin: usize,
}

impl Lent {
    fn new() -> Self {
        let memory = vec![0; BYTES as usize + 128];
        let begin = memory.as_ptr().align_offset(64);
        Lent { memory, begin }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.begin..self.begin + BYTES as usize]
    }

    #[allow(unsafe_code)] // The kit is a host: it vouches for the memory that it lends.
    fn to(&mut self, device: &dyn Device) -> Result<Buffer, PluginError> {
        let start = NonNull::from(&mut self.memory[self.begin..]).cast();
        // SAFETY: the memory is aligned, has its tail, and is kept until the check has freed the
        // buffer.
        device.import(unsafe { HostMemory::new(start, BYTES) })
    }
}

fn lent(device: &dyn Device) -> Checked {
    let mut memory = Lent::new();
    let buffer = match memory.to(device) {
        Err(error) if error.code == ErrorCode::UNSUPPORTED => {
            refusal(&error)?;
            return Err(Fault::Skipped(error.message));
        }
        made => made?,
    };
    let sent = pattern(BYTES, 3);
    device.upload(&sent, whole(buffer), Stream(0))?;
    let own = device.alloc(BYTES, MemoryKind::DEVICE)?;
    device.copy(whole(buffer), whole(own), Stream(0))?;
    device.synchronize(Stream(0))?;
    let mut found = vec![0; BYTES as usize];
    device.download(whole(own), &mut found, Stream(0))?;
    ensure(found == sent, || "it came back as other bytes".into())?;
    let beyond = part(buffer, BYTES - 63, 64);
    expect_refusal(
        device.copy(beyond, part(own, 0, 64), Stream(0)),
        "a range beyond it",
    )?;
    device.free(buffer)?;
    device.free(own)?;
    ensure(memory.bytes() == sent, || {
        "the host does not see what was written".into()
    })
}

fn streams(device: &dyn Device) -> Checked {
    let stream = device.stream()?;
    ensure(stream != Stream(0), || {
        "a new stream is the compute stream".into()
    })?;
    let event = device.record(stream)?;
    device.wait(Stream(0), event)?;
    device.synchronize(stream)?;
    device.synchronize(Stream(0))?;
    expect_refusal(
        device.record(Stream(u64::MAX)),
        "an event of a stream that does not exist",
    )?;
    expect_refusal(
        device.wait(stream, Event(u64::MAX)),
        "an event that does not exist",
    )
}

fn unknown_op(device: &dyn Device) -> Checked {
    let request = KernelRequest::new("no_such_op").limits(1, 1);
    let Err(error) = device.prepare(&request, &[]) else {
        return Err(Fault::Failed("`no_such_op` was prepared".to_owned()));
    };
    refusal(&error)?;
    let named = error.code == ErrorCode::UNSUPPORTED && error.message.contains("no_such_op");
    ensure(named, || {
        format!(
            "expected code UNSUPPORTED and the op's name, found {}: {}",
            error.code.0, error.message
        )
    })
}
