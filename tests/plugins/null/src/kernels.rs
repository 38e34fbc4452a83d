//! Kernel requests -> the expected operands of each launch; nothing is computed.

use espalier_interface::graph::Dim;
use espalier_interface::{
    BufferRange, Kernel, KernelRequest, Launch, OpId, Operand, PluginError, Prepared, Result,
    WeightLayout,
};

/// Alignment of every operand in bytes.
const ALIGNMENT: u64 = 64;

/// The prepared kernels.
pub struct Book {
    ops: Vec<OpId>,
    requests: Vec<KernelRequest>,
}

impl Book {
    /// No kernel yet, of these ops.
    pub fn new(ops: Vec<OpId>) -> Self {
        Book {
            ops,
            requests: Vec::new(),
        }
    }

    /// Records a request, with at most one decoder per param.
    pub fn prepare(&mut self, request: &KernelRequest, decoders: usize) -> Result<Prepared> {
        let op = request.op.as_str();
        let mut listed = self.ops.iter();
        if !listed.any(|one| one.name == op && one.version == request.version) {
            return Err(PluginError::unsupported(format!("there is no op `{op}`")));
        }
        if decoders != request.params.len() {
            return Err(PluginError::invalid(format!(
                "op `{op}`: {decoders} decoders for {} params",
                request.params.len()
            )));
        }
        self.requests.push(request.clone());
        Ok(Prepared {
            kernel: Kernel(self.requests.len() as u64),
            workspace_bytes: 0,
        })
    }

    /// Checks a launch against its request.
    pub fn check(&self, launch: &Launch<'_>) -> Result<()> {
        let index = (launch.kernel.0 as usize).checked_sub(1);
        let request = index.and_then(|index| self.requests.get(index));
        let request = request.ok_or_else(|| {
            PluginError::invalid(format!("there is no kernel {}", launch.kernel.0))
        })?;
        let refuse =
            |what: String| Err(PluginError::invalid(format!("op `{}`: {what}", request.op)));
        if launch.tokens > request.max_tokens || launch.sequences > request.max_sequences {
            return refuse(format!(
                "{} tokens of {} sequences, planned were {} and {}",
                launch.tokens, launch.sequences, request.max_tokens, request.max_sequences
            ));
        }
        let expected = expected(request, launch);
        if expected.len() != launch.ranges.len() {
            let found = launch.ranges.len();
            return refuse(format!("{found} ranges, expected {}", expected.len()));
        }
        let ranges = launch.ranges.iter().zip(&expected);
        for (place, (range, bytes)) in ranges.enumerate() {
            if range.offset % ALIGNMENT != 0 {
                return refuse(format!("range {place} begins at byte {}", range.offset));
            }
            if range.bytes != *bytes {
                let found = range.bytes;
                return refuse(format!("range {place} has {found} bytes, expected {bytes}"));
            }
        }
        apart(request, launch.ranges)
    }
}

/// Bytes of each range: inputs, params, outputs.
fn expected(request: &KernelRequest, launch: &Launch<'_>) -> Vec<u64> {
    let extent = |dim: &Dim| match *dim {
        Dim::Tokens => launch.tokens,
        Dim::Boundaries => launch.sequences + 1,
        Dim::Fixed(extent) => extent,
    };
    let value = |operand: &Operand| -> u64 {
        operand.dtype.bytes() * operand.shape.iter().map(extent).product::<u64>()
    };
    let mut bytes: Vec<u64> = request.inputs.iter().map(value).collect();
    for param in &request.params {
        match &param.layout {
            WeightLayout::Dense(dtype) => {
                bytes.push(dtype.bytes() * param.shape.iter().product::<u64>());
            }
            WeightLayout::Packed(format) => {
                bytes.extend(format.segments.iter().map(|segment| segment.bytes()));
            }
        }
    }
    bytes.extend(request.outputs.iter().map(value));
    bytes
}

/// Checks that no two outputs overlap.
fn apart(request: &KernelRequest, ranges: &[BufferRange]) -> Result<()> {
    let outputs = &ranges[ranges.len() - request.outputs.len()..];
    for (index, one) in outputs.iter().enumerate() {
        for other in &outputs[..index] {
            let overlap = one.buffer == other.buffer
                && one.offset < other.offset + other.bytes
                && other.offset < one.offset + one.bytes;
            if overlap {
                return Err(PluginError::invalid(format!(
                    "op `{}`: two outputs share bytes",
                    request.op
                )));
            }
        }
    }
    Ok(())
}
