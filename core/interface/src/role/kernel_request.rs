//! What a kernel computes, with all shapes but those of tokens: op, attributes, operands, limits.

use serde::{Deserialize, Serialize};

use super::OpId;
use crate::DType;
use crate::format::{DeviceCode, Format};
use crate::graph::{Attributes, Dim};

/// An operand of a kernel: a value of a graph with its dtype resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operand {
    /// Extents; the symbolic ones are given at launch.
    pub shape: Vec<Dim>,
    /// Element type.
    pub dtype: DType,
}

/// The memory layout of a weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightLayout {
    /// One array of elements, row major.
    Dense(DType),
    /// Segments, one buffer range each, in the format's order.
    Packed(Box<Format>),
}

/// A param of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParamOperand {
    /// Shape as in the checkpoint.
    pub shape: Vec<u64>,
    /// Its layout in memory.
    pub layout: WeightLayout,
}

/// The request of a kernel, for [`Kernels::prepare`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelRequest {
    /// Name of the op.
    pub op: String,
    /// Version of the op.
    pub version: u32,
    /// Attributes.
    pub attributes: Attributes,
    /// Values read.
    pub inputs: Vec<Operand>,
    /// Params read.
    pub params: Vec<ParamOperand>,
    /// For each param whose format is [`crate::format::Decoding::Callback`], the quantizer's code
    /// for devices, if it has one. One entry a param, or no entries.
    #[serde(default, skip_serializing_if = "is_without_code")]
    pub device_code: Vec<Option<DeviceCode>>,
    /// Values written, or added to where the op says so.
    pub outputs: Vec<Operand>,
    /// Largest `T` of any launch.
    pub max_tokens: u64,
    /// Largest `S` of any launch.
    pub max_sequences: u64,
}

fn is_without_code(code: &[Option<DeviceCode>]) -> bool {
    code.iter().all(Option::is_none)
}

impl Operand {
    /// A value of `width` elements a token, `[T, width]`.
    pub fn per_token(width: u64, dtype: DType) -> Self {
        Operand {
            shape: vec![Dim::Tokens, Dim::Fixed(width)],
            dtype,
        }
    }

    /// A run of elements, `[count]`.
    pub fn flat(count: u64, dtype: DType) -> Self {
        Operand {
            shape: vec![Dim::Fixed(count)],
            dtype,
        }
    }
}

impl KernelRequest {
    /// Version 1 of `op`, without attributes and operands, for launches without tokens.
    pub fn new(op: &str) -> Self {
        KernelRequest {
            op: op.to_owned(),
            version: 1,
            attributes: Attributes::new(),
            inputs: Vec::new(),
            params: Vec::new(),
            device_code: Vec::new(),
            outputs: Vec::new(),
            max_tokens: 0,
            max_sequences: 0,
        }
    }

    /// The code that decodes param `index` on a device, if its quantizer has one.
    pub fn device_code_of(&self, index: usize) -> Option<&DeviceCode> {
        self.device_code.get(index)?.as_ref()
    }

    /// The op's name and version.
    pub fn id(&self) -> OpId {
        OpId {
            name: self.op.clone(),
            version: self.version,
        }
    }

    /// Of version `version` of the op.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// With these attributes.
    #[must_use]
    pub fn attributes(mut self, attributes: Attributes) -> Self {
        self.attributes = attributes;
        self
    }

    /// With these values read.
    #[must_use]
    pub fn inputs(mut self, inputs: Vec<Operand>) -> Self {
        self.inputs = inputs;
        self
    }

    /// With these params read.
    #[must_use]
    pub fn params(mut self, params: Vec<ParamOperand>) -> Self {
        self.params = params;
        self
    }

    /// With these values written.
    #[must_use]
    pub fn outputs(mut self, outputs: Vec<Operand>) -> Self {
        self.outputs = outputs;
        self
    }

    /// For launches of at most `tokens` tokens in at most `sequences` sequences.
    #[must_use]
    pub fn limits(mut self, tokens: u64, sequences: u64) -> Self {
        (self.max_tokens, self.max_sequences) = (tokens, sequences);
        self
    }
}
