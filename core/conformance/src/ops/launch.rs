//! A case -> the bytes of its outputs, launched twice through a device's traits, with everything
//! that a kernel must not read or write watched.
//!
//! All operands are in one buffer, each at an odd multiple of 64 bytes. The bytes between them, the
//! rows after the launch's tokens, outputs and the workspace hold a filling. It is NaN in every
//! float dtype, then large numbers. Both launches must give the same bits.

use espalier_interface::graph::Dim;
use espalier_interface::{
    Buffer, BufferRange, Device, ErrorCode, KernelRequest, Launch, MemoryKind, Operand, Prepared,
    Stream, WeightLayout,
};

use super::case::OpCase;
use crate::checked::{Checked, Fault, ensure, refusal};

/// Fillings: NaN in f64, f32, bf16 and f16; then 1.3e7 in f32.
const FILLINGS: [u8; 2] = [0xFF, 0x4B];
/// Alignment of operands.
const ALIGNMENT: usize = 64;

/// What came of a case.
pub enum Ran {
    /// It was launched twice.
    Outputs {
        /// The bytes of each output of the first launch.
        first: Vec<Vec<u8>>,
        /// Whether the second launch gave the same.
        same: Checked,
    },
    /// The device does not have the kernel, in its own words.
    NotOffered(String),
}

/// A range of the buffer.
struct Piece {
    /// Name for messages, such as `input 1`.
    name: String,
    begin: usize,
    /// Bytes of the launch.
    bytes: usize,
    /// Bytes of the largest launch.
    most: usize,
    /// Index of the output.
    output: Option<usize>,
}

impl Piece {
    fn range(&self) -> std::ops::Range<usize> {
        self.begin..self.begin + self.bytes
    }
}

/// A case's kernel, or why the device does not have it.
pub type Kernel = Result<Prepared, String>;

/// Prepares a case's kernel.
///
/// # Errors
/// A failed call.
pub fn prepare(device: &dyn Device, case: &OpCase) -> Checked<Kernel> {
    match device.prepare(&case.request, &case.decoders) {
        Err(error) if error.code == ErrorCode::UNSUPPORTED => {
            refusal(&error)?;
            Ok(Err(error.message))
        }
        prepared => Ok(Ok(prepared?)),
    }
}

/// Runs a case by its kernel, which is then released.
///
/// # Errors
/// A failed call, or bytes changed that are none of the op's.
pub fn run(device: &dyn Device, case: &OpCase, kernel: Kernel) -> Checked<Ran> {
    let prepared = match kernel {
        Ok(prepared) => prepared,
        Err(why) => return Ok(Ran::NotOffered(why)),
    };
    let pieces = pieces(case);
    let [first, second] = FILLINGS.map(|filling| launch(device, case, &pieces, prepared, filling));
    device.release(prepared.kernel)?;
    let (first, second) = (first?, second?);
    let same = same(&first, &second);
    Ok(Ran::Outputs { first, same })
}

fn same(first: &[Vec<u8>], second: &[Vec<u8>]) -> Checked {
    for (index, (first, second)) in first.iter().zip(second).enumerate() {
        ensure(first == second, || {
            let at = first.iter().zip(second).position(|(a, b)| a != b);
            format!(
                "output {index}: two launches on the same operands differ at byte {}; the second \
                 had other bytes in its outputs and its workspace before it",
                at.unwrap_or_default()
            )
        })?;
    }
    Ok(())
}

/// The operands in the order of a launch, laid out in one buffer.
fn pieces(case: &OpCase) -> Vec<Piece> {
    let request = &case.request;
    let inputs = case.inputs.iter().zip(&request.inputs).enumerate();
    let inputs = inputs.map(|(index, (bytes, operand))| {
        (
            format!("input {index}"),
            bytes.len(),
            most_bytes(request, operand),
            None,
        )
    });
    let params = range_names(request).into_iter().zip(&case.params);
    let params = params.map(|(name, bytes)| (name, bytes.len(), bytes.len(), None));
    let outputs = case.outputs.iter().zip(&request.outputs).enumerate();
    let outputs = outputs.map(|(index, (target, operand))| {
        let bytes = target.expected.values.len() * operand.dtype.bytes() as usize;
        (
            format!("output {index}"),
            bytes,
            most_bytes(request, operand),
            Some(index),
        )
    });
    let mut end = 0usize;
    let placed = inputs.chain(params).chain(outputs);
    let placed = placed.map(|(name, bytes, most, output)| {
        // At least one line of filling before each, and an odd number of lines from the start.
        let line = end.div_ceil(ALIGNMENT) + 1;
        let begin = ALIGNMENT * (line + usize::from(line.is_multiple_of(2)));
        end = begin + most;
        Piece {
            name,
            begin,
            bytes,
            most,
            output,
        }
    });
    let mut placed: Vec<Piece> = placed.collect();
    if let Some(input) = case.in_place_of {
        let output = placed.len() - request.outputs.len();
        placed[output].begin = placed[input].begin;
    }
    placed
}

/// A name for each range of the params.
fn range_names(request: &KernelRequest) -> Vec<String> {
    let params = request.params.iter().enumerate();
    let names = params.flat_map(|(index, param)| match &param.layout {
        WeightLayout::Dense(_) => vec![format!("param {index}")],
        WeightLayout::Packed(format) => {
            let segments = format.segments.iter();
            let name = |segment: &str| format!("segment `{segment}` of param {index}");
            segments.map(|segment| name(&segment.name)).collect()
        }
    });
    names.collect()
}

/// Bytes of an operand in the largest launch.
fn most_bytes(request: &KernelRequest, operand: &Operand) -> usize {
    let extents = operand.shape.iter().map(|dim| match dim {
        Dim::Tokens => request.max_tokens,
        Dim::Boundaries => request.max_sequences + 1,
        Dim::Fixed(extent) => *extent,
    });
    (extents.product::<u64>() * operand.dtype.bytes()) as usize
}

/// A buffer that is given back when it goes out of scope.
struct Taken<'a> {
    device: &'a dyn Device,
    buffer: Buffer,
}

impl<'a> Taken<'a> {
    /// A buffer that holds `bytes`.
    fn with(device: &'a dyn Device, bytes: &[u8]) -> Checked<Self> {
        let buffer = device.alloc(bytes.len() as u64, MemoryKind::DEVICE)?;
        let taken = Taken { device, buffer };
        device.upload(bytes, taken.part(0, bytes.len()), Stream(0))?;
        Ok(taken)
    }

    fn part(&self, offset: usize, bytes: usize) -> BufferRange {
        BufferRange {
            buffer: self.buffer,
            offset: offset as u64,
            bytes: bytes as u64,
        }
    }

    fn read(&self, bytes: usize) -> Checked<Vec<u8>> {
        let mut found = vec![0; bytes];
        self.device
            .download(self.part(0, bytes), &mut found, Stream(0))?;
        Ok(found)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // A buffer that cannot be given back costs memory, nothing else.
        let _ = self.device.free(self.buffer);
    }
}

fn launch(
    device: &dyn Device,
    case: &OpCase,
    pieces: &[Piece],
    prepared: Prepared,
    filling: u8,
) -> Checked<Vec<Vec<u8>>> {
    let before = image(case, pieces, filling);
    let memory = Taken::with(device, &before)?;
    let workspace_bytes = prepared.workspace_bytes as usize;
    let around = vec![filling; workspace_bytes + 2 * ALIGNMENT];
    let workspace = Taken::with(device, &around)?;
    let ranges = pieces
        .iter()
        .map(|piece| memory.part(piece.begin, piece.bytes));
    let ranges: Vec<BufferRange> = ranges.collect();
    device.launch(&Launch {
        kernel: prepared.kernel,
        stream: Stream(0),
        ranges: &ranges,
        workspace: workspace.part(ALIGNMENT, workspace_bytes),
        tokens: case.tokens,
        sequences: case.sequences,
        scalars: &case.scalars,
    })?;
    device.synchronize(Stream(0))?;
    let after = memory.read(before.len())?;
    untouched(pieces, &before, &after)?;
    let after_workspace = workspace.read(around.len())?;
    let edges = [0..ALIGNMENT, ALIGNMENT + workspace_bytes..around.len()];
    for edge in edges {
        ensure(after_workspace[edge.clone()] == around[edge], || {
            format!("bytes beside the workspace of {workspace_bytes} bytes were written")
        })?;
    }
    let outputs = pieces.iter().filter(|piece| piece.output.is_some());
    Ok(outputs.map(|piece| after[piece.range()].to_vec()).collect())
}

/// The buffer before a launch.
fn image(case: &OpCase, pieces: &[Piece], filling: u8) -> Vec<u8> {
    let ends = pieces.iter().map(|piece| piece.begin + piece.most);
    let end = ends.max().unwrap_or_default();
    let mut image = vec![filling; end + 2 * ALIGNMENT];
    let operands = case.inputs.iter().chain(&case.params).map(Some);
    let outputs = case.outputs.iter().map(|target| target.start.as_ref());
    for (piece, bytes) in pieces.iter().zip(operands.chain(outputs)) {
        if let Some(bytes) = bytes {
            image[piece.range()].copy_from_slice(bytes);
        }
    }
    image
}

/// Checks that nothing changed but the outputs' elements of the launch.
fn untouched(pieces: &[Piece], before: &[u8], after: &[u8]) -> Checked {
    let written = |at: usize| {
        let mut outputs = pieces.iter().filter(|piece| piece.output.is_some());
        outputs.any(|piece| piece.range().contains(&at))
    };
    let changed = (0..before.len()).find(|&at| before[at] != after[at] && !written(at));
    let Some(at) = changed else { return Ok(()) };
    let piece = pieces.iter().rev().find(|piece| piece.begin <= at);
    Err(Fault::Failed(match piece {
        None => format!("byte {at} of the buffer, before all operands, was written"),
        Some(piece) if at < piece.begin + piece.bytes => {
            format!(
                "byte {} of {}, which is only read, was written",
                at - piece.begin,
                piece.name
            )
        }
        Some(piece) => format!(
            "{} has {} bytes in this launch of {} at most, but byte {} from its start was written",
            piece.name,
            piece.bytes,
            piece.most,
            at - piece.begin
        ),
    }))
}
