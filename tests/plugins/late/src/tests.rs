//! A device with its options, as the tests of every part use it.

mod faults;
mod host_memory;
mod orders;
mod pages;
mod races;

use std::sync::Arc;

use espalier_interface::graph::Attributes;
use espalier_interface::{
    Backend, Buffer, BufferRange, DType, Device, Kernel, KernelRequest, Launch, MemoryKind,
    Operand, Options, Serial, Stream,
};
use serde_json::{Value as Json, json};

use crate::LATE;
use crate::backend::LateBackend;

/// Bytes of the buffers under test.
const BYTES: u64 = 64;

/// The compute stream.
const COMPUTE: Stream = Stream(0);

/// The declared defaults with `changes`.
fn options(changes: &[(&str, Json)]) -> Options {
    let mut options = Options::default();
    for option in LATE.options {
        let default: Json = serde_json::from_str(option.default).expect("a declared default");
        if !default.is_null() {
            options.0.insert(option.name.to_owned(), default);
        }
    }
    for (name, value) in changes {
        options.0.insert((*name).to_owned(), value.clone());
    }
    options
}

fn device(changes: &[(&str, Json)]) -> Box<dyn Device> {
    let backend = LateBackend::new(&options(changes), Arc::new(Serial)).expect("valid options");
    backend.open(0).expect("a device")
}

fn in_order(order: &str) -> Box<dyn Device> {
    device(&[("order", json!(order))])
}

/// A device for programs that leave out waits: races are no failures.
fn racing(order: &str) -> Box<dyn Device> {
    device(&[("order", json!(order)), ("races", json!("count"))])
}

fn whole(buffer: Buffer) -> BufferRange {
    BufferRange {
        buffer,
        offset: 0,
        bytes: BYTES,
    }
}

fn alloc(device: &dyn Device, kind: MemoryKind) -> Buffer {
    device.alloc(BYTES, kind).expect("64 bytes")
}

fn upload(device: &dyn Device, value: u8, to: Buffer, stream: Stream) {
    let bytes = [value; BYTES as usize];
    device.upload(&bytes, whole(to), stream).expect("an upload");
}

fn copy(device: &dyn Device, from: Buffer, to: Buffer, stream: Stream) {
    device.copy(whole(from), whole(to), stream).expect("a copy");
}

/// The value of all bytes of a buffer, downloaded by `stream`.
fn value(device: &dyn Device, from: Buffer, stream: Stream) -> u8 {
    let mut bytes = [0; BYTES as usize];
    let done = device.download(whole(from), &mut bytes, stream);
    done.expect("a download");
    assert_eq!(bytes, [bytes[0]; BYTES as usize], "one value throughout");
    bytes[0]
}

/// A kernel that sets `elements` elements of f32 to 1.
fn ones(device: &dyn Device, elements: u64) -> Kernel {
    let request = KernelRequest::new("init")
        .attributes(Attributes::new().with("kind", "ones"))
        .outputs(vec![Operand::flat(elements, DType::F32)]);
    device.prepare(&request, &[]).expect("a known op").kernel
}

fn launch(device: &dyn Device, kernel: Kernel, to: Buffer, stream: Stream) {
    let launched = device.launch(&Launch {
        kernel,
        stream,
        ranges: &[whole(to)],
        workspace: whole(to),
        tokens: 0,
        sequences: 0,
        scalars: &[0.0; 3],
    });
    launched.expect("a valid launch");
}
