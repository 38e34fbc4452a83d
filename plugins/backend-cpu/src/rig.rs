//! A request and its arrays -> a launch through the device's traits, for the tests of every op.

use std::sync::Arc;

use espalier_interface::graph::{Attributes, Dim};
use espalier_interface::{
    BufferRange, KernelRequest, Kernels, Launch, Memory, MemoryKind, OpId, Operand, ParamOperand,
    Result, Serial, Stream, WeightLayout,
};

use espalier_host_device::{HostDevice, HostOptions};
use espalier_kernels::element::Element;
use espalier_kernels::matmul::Isa;

use crate::backend::CpuKernels;

/// An operand and its bytes.
#[derive(Clone, Debug)]
pub struct Array {
    pub operand: Operand,
    pub bytes: Vec<u8>,
}

/// `values` as an operand.
#[allow(unsafe_code)]
pub fn array<N: Element>(shape: &[Dim], values: &[N]) -> Array {
    // SAFETY: numbers have no padding.
    let bytes = unsafe {
        std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)).to_vec()
    };
    Array {
        operand: Operand {
            shape: shape.to_vec(),
            dtype: N::DTYPE,
        },
        bytes,
    }
}

/// Batch integers, `[T]`.
pub fn integers(values: &[i32]) -> Array {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let dtype = espalier_interface::DType::I32;
    Array {
        operand: Operand {
            shape: vec![Dim::Tokens],
            dtype,
        },
        bytes,
    }
}

/// `bytes` as numbers.
pub fn numbers<N: Element>(bytes: &[u8]) -> Vec<N> {
    assert!(bytes.len().is_multiple_of(size_of::<N>()));
    let mut values = Vec::with_capacity(bytes.len() / size_of::<N>());
    for chunk in bytes.chunks_exact(size_of::<N>()) {
        #[allow(unsafe_code)]
        // SAFETY: the chunk has the number's size; the read is unaligned and any bits are a valid
        // value.
        values.push(unsafe { chunk.as_ptr().cast::<N>().read_unaligned() });
    }
    values
}

/// A device that computes on the calling thread, with products by `isa`.
pub fn device(isa: Isa) -> HostDevice {
    let options = HostOptions::default();
    HostDevice::new(Box::new(CpuKernels { isa }), Arc::new(Serial), options)
}

/// A launch under construction.
pub struct Rig {
    pub device: HostDevice,
    pub op: &'static str,
    pub attributes: Attributes,
    pub inputs: Vec<Array>,
    pub params: Vec<(ParamOperand, Vec<Vec<u8>>)>,
    pub outputs: Vec<Array>,
    pub tokens: u64,
    pub sequences: u64,
    pub scalars: Vec<f64>,
}

impl Rig {
    /// A launch of `op`, `NAME` or `NAME.VERSION`, on `tokens` tokens.
    pub fn new(op: &'static str, tokens: usize) -> Self {
        Rig {
            device: device(Isa::detect()),
            op,
            attributes: Attributes::new(),
            inputs: Vec::new(),
            params: Vec::new(),
            outputs: Vec::new(),
            tokens: tokens as u64,
            sequences: 1,
            scalars: Vec::new(),
        }
    }

    /// With an input.
    pub fn input(mut self, array: Array) -> Self {
        self.inputs.push(array);
        self
    }

    /// With a dense param.
    pub fn param<N: Element>(mut self, shape: &[u64], values: &[N]) -> Self {
        let layout = WeightLayout::Dense(N::DTYPE);
        let operand = ParamOperand {
            shape: shape.to_vec(),
            layout,
        };
        self.params.push((operand, vec![array(&[], values).bytes]));
        self
    }

    /// With an output that starts as `array`.
    pub fn output(mut self, array: Array) -> Self {
        self.outputs.push(array);
        self
    }

    /// With attributes.
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.attributes = self.attributes.with(name, value);
        self
    }

    /// With scalars.
    pub fn scalars(mut self, scalars: &[f64]) -> Self {
        self.scalars = scalars.to_vec();
        self
    }

    /// The request for this launch.
    pub fn request(&self) -> KernelRequest {
        let op = OpId::named(self.op);
        KernelRequest::new(&op.name)
            .version(op.version)
            .attributes(self.attributes.clone())
            .inputs(self.inputs.iter().map(|a| a.operand.clone()).collect())
            .params(self.params.iter().map(|p| p.0.clone()).collect())
            .outputs(self.outputs.iter().map(|a| a.operand.clone()).collect())
            .limits(self.tokens + 3, self.sequences + 1)
    }

    /// A range with these bytes, in a separate buffer, after 64 other bytes.
    pub fn range(&self, bytes: &[u8]) -> BufferRange {
        let len = bytes.len() as u64;
        let buffer = self
            .device
            .alloc(64 + len, MemoryKind::DEVICE)
            .expect("a little memory");
        let range = BufferRange {
            buffer,
            offset: 64,
            bytes: len,
        };
        self.device
            .upload(bytes, range, Stream(0))
            .expect("it fits");
        range
    }

    /// The ranges of inputs, params and outputs.
    pub fn ranges(&self) -> Vec<BufferRange> {
        let inputs = self.inputs.iter().map(|a| &a.bytes);
        let params = self.params.iter().flat_map(|p| &p.1);
        let outputs = self.outputs.iter().map(|a| &a.bytes);
        inputs
            .chain(params)
            .chain(outputs)
            .map(|bytes| self.range(bytes))
            .collect()
    }

    /// Prepares and launches on `ranges`.
    pub fn launch(&self, ranges: &[BufferRange]) -> Result<()> {
        let decoders = vec![None; self.params.len()];
        let request = self.request();
        // As the boundary does.
        request.validate()?;
        let made = self.device.prepare(&request, &decoders)?;
        let workspace = self.range(&vec![0xA5; made.workspace_bytes as usize]);
        self.device.launch(&Launch {
            kernel: made.kernel,
            stream: Stream(0),
            ranges,
            workspace,
            tokens: self.tokens,
            sequences: self.sequences,
            scalars: &self.scalars,
        })
    }

    /// Runs it and returns the bytes of the outputs.
    pub fn run(&self) -> Result<Vec<Vec<u8>>> {
        let ranges = self.ranges();
        self.launch(&ranges)?;
        let outputs = &ranges[ranges.len() - self.outputs.len()..];
        Ok(outputs.iter().map(|range| self.read(*range)).collect())
    }

    /// The bytes of a range.
    pub fn read(&self, range: BufferRange) -> Vec<u8> {
        let mut bytes = vec![0; range.bytes as usize];
        self.device
            .download(range, &mut bytes, Stream(0))
            .expect("it exists");
        bytes
    }
}
