//! A request for a kernel and the bytes of its operands -> the bytes of its output.

use espalier_interface::{BufferRange, Device, KernelRequest, Launch, MemoryKind, Stream};

/// Launches a kernel for as many tokens as it is requested for.
///
/// `operands` are the bytes of inputs and of each range of the params. The output has `bytes`, all
/// 0 before.
///
/// # Panics
/// Where a call of the device fails.
pub fn launched(
    device: &dyn Device,
    request: &KernelRequest,
    operands: &[&[u8]],
    bytes: usize,
) -> Vec<u8> {
    let decoders = vec![None; request.params.len()];
    let prepared = device.prepare(request, &decoders).expect("a kernel");
    let range = |bytes: u64| {
        let buffer = device.alloc(bytes.max(1), MemoryKind::DEVICE);
        BufferRange {
            buffer: buffer.expect("room"),
            offset: 0,
            bytes,
        }
    };
    // New buffers hold zeros.
    let sizes = operands.iter().map(|part| part.len() as u64);
    let mut ranges: Vec<BufferRange> = sizes.map(range).collect();
    for (part, to) in operands.iter().zip(&ranges) {
        device.upload(part, *to, Stream(0)).expect("an upload");
    }
    ranges.push(range(bytes as u64));
    let launch = Launch {
        kernel: prepared.kernel,
        stream: Stream(0),
        ranges: &ranges,
        workspace: range(prepared.workspace_bytes),
        tokens: request.max_tokens,
        sequences: request.max_sequences,
        scalars: &[],
    };
    device.launch(&launch).expect("a launch");
    let mut output = vec![0; bytes];
    let read = device.download(ranges[operands.len()], &mut output, Stream(0));
    read.expect("the output");
    output
}
