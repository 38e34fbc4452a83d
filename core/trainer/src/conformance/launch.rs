//! One product on a device, from arrays to arrays.

use espalier_interface::{
    Buffer, BufferRange, DType, Decoder, Device, KernelRequest, Launch, MemoryKind, Operand,
    ParamOperand, Result, Stream, WeightLayout,
};

/// A weight and its bytes.
pub struct Weight {
    /// `[N, M]`.
    pub shape: Vec<u64>,
    /// Its layout in memory.
    pub layout: WeightLayout,
    /// One run, or one a segment.
    pub bytes: Vec<Vec<u8>>,
    /// For a format that describes no decoding.
    pub decoder: Option<Decoder>,
}

/// Buffers that are freed on drop.
struct Buffers<'a> {
    device: &'a dyn Device,
    buffers: Vec<Buffer>,
}

impl Buffers<'_> {
    /// A range that holds `bytes`.
    fn with(&mut self, bytes: &[u8]) -> Result<BufferRange> {
        let range = self.zeros(bytes.len() as u64)?;
        self.device.upload(bytes, range, Stream(0))?;
        Ok(range)
    }

    fn zeros(&mut self, bytes: u64) -> Result<BufferRange> {
        let buffer = self.device.alloc(bytes.max(64), MemoryKind::DEVICE)?;
        self.buffers.push(buffer);
        Ok(BufferRange {
            buffer,
            offset: 0,
            bytes,
        })
    }
}

impl Drop for Buffers<'_> {
    fn drop(&mut self) {
        for &buffer in &self.buffers {
            // A buffer that cannot be freed only costs memory.
            let _ = self.device.free(buffer);
        }
    }
}

/// Launches `op` in f64 on `x`, `[T, width]`, and `weight`; the result is `[T, out_width]`.
///
/// # Errors
/// Errors of the device.
pub fn product(
    device: &dyn Device,
    op: &str,
    (x, width): (&[f64], u64),
    weight: &Weight,
    out_width: u64,
) -> Result<Vec<f64>> {
    let tokens = x.len() as u64 / width;
    let request = KernelRequest::new(op)
        .inputs(vec![Operand::per_token(width, DType::F64)])
        .params(vec![ParamOperand {
            shape: weight.shape.clone(),
            layout: weight.layout.clone(),
        }])
        .outputs(vec![Operand::per_token(out_width, DType::F64)])
        .limits(tokens, 1);
    let prepared = device.prepare(&request, &[weight.decoder])?;
    let mut buffers = Buffers {
        device,
        buffers: Vec::new(),
    };
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut ranges = vec![buffers.with(&bytes)?];
    for run in &weight.bytes {
        ranges.push(buffers.with(run)?);
    }
    let out = buffers.zeros(8 * tokens * out_width)?;
    ranges.push(out);
    let workspace = buffers.zeros(prepared.workspace_bytes)?;
    device.launch(&Launch {
        kernel: prepared.kernel,
        stream: Stream(0),
        ranges: &ranges,
        workspace,
        tokens,
        sequences: 1,
        scalars: &[],
    })?;
    let mut bytes = vec![0; out.bytes as usize];
    device.download(out, &mut bytes, Stream(0))?;
    let numbers = bytes.chunks_exact(8);
    Ok(numbers
        .map(|x| f64::from_le_bytes(x.try_into().expect("eight bytes")))
        .collect())
}
