//! One launch of an op: the request, the operands' bytes, and what the outputs must hold.

use espalier_interface::graph::Dim;
use espalier_interface::{DType, Decoder, KernelRequest, Operand, ParamOperand, WeightLayout};
use serde_json::Value as Json;

use super::numbers::{encode, rounded};
use super::packed::Packed;

/// Tokens that a kernel is prepared for beyond those of the launch.
const MORE_TOKENS: u64 = 3;
/// Sequences that a kernel is prepared for beyond those of the launch.
const MORE_SEQUENCES: u64 = 2;

/// The numbers that an output must hold, each within a bound. A bound of 0 asks for the dtype's
/// number nearest to the value.
#[derive(Clone, Debug, Default)]
pub struct Near {
    /// The values, of the oracle.
    pub values: Vec<f64>,
    /// The error that arithmetic in the reduce dtype may make, before the result is rounded to a
    /// narrower dtype.
    pub bounds: Vec<f64>,
}

impl Near {
    /// Values with their bounds.
    ///
    /// # Panics
    /// Where there are more of one than of the other.
    pub fn new(values: Vec<f64>, bounds: Vec<f64>) -> Self {
        assert_eq!(values.len(), bounds.len(), "a bound for each value");
        Near { values, bounds }
    }

    /// Values that must be met exactly.
    pub fn exact(values: Vec<f64>) -> Self {
        let bounds = vec![0.0; values.len()];
        Near { values, bounds }
    }

    /// Values whose errors are at most `factor` times `magnitudes`.
    pub fn relative(values: Vec<f64>, magnitudes: &[f64], factor: f64) -> Self {
        let bounds = magnitudes.iter().map(|m| factor * m.abs()).collect();
        Near::new(values, bounds)
    }
}

/// What an output holds before a launch and must hold after it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The bytes before; poison where it is to be written whole.
    pub start: Option<Vec<u8>>,
    /// The numbers after.
    pub expected: Near,
}

/// One launch of an op.
#[derive(Clone, Debug)]
pub struct OpCase {
    /// What is special about it: shapes, dtypes.
    pub name: String,
    /// The kernel.
    pub request: KernelRequest,
    /// The bytes of each input.
    pub inputs: Vec<Vec<u8>>,
    /// The bytes of each range of the params.
    pub params: Vec<Vec<u8>>,
    /// A decoder for each param whose format has none.
    pub decoders: Vec<Option<Decoder>>,
    /// The outputs.
    pub outputs: Vec<Target>,
    /// `T`.
    pub tokens: u64,
    /// `S`.
    pub sequences: u64,
    /// Scalars in the op's order.
    pub scalars: Vec<f64>,
    /// Index of the input in whose memory the first output lies; none if it has its own.
    pub in_place_of: Option<usize>,
}

impl OpCase {
    /// A launch of `op` on `tokens` tokens of one sequence, fewer than it is prepared for.
    pub fn new(op: &str, tokens: usize, name: String) -> Self {
        let tokens = tokens as u64;
        OpCase {
            name,
            request: KernelRequest::new(op).limits(tokens + MORE_TOKENS, 1 + MORE_SEQUENCES),
            inputs: Vec::new(),
            params: Vec::new(),
            decoders: Vec::new(),
            outputs: Vec::new(),
            tokens,
            sequences: 1,
            scalars: Vec::new(),
            in_place_of: None,
        }
    }

    /// A launch of `op` on flat runs of elements, as the host's part of a step makes it.
    pub fn flat(op: &str, name: String) -> Self {
        let mut case = OpCase::new(op, 0, name);
        (case.request.max_tokens, case.request.max_sequences) = (0, 0);
        case.sequences = 0;
        case
    }

    /// The launch on `count` sequences.
    #[must_use]
    pub fn sequences(mut self, count: usize) -> Self {
        self.sequences = count as u64;
        self.request.max_sequences = count as u64 + MORE_SEQUENCES;
        self
    }

    /// The launch of that version of the op.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.request.version = version;
        self
    }

    /// With the first output in the memory of input `index`, which has its size.
    #[must_use]
    pub fn in_place_of(mut self, index: usize) -> Self {
        self.in_place_of = Some(index);
        self.name += ", in place";
        self
    }

    /// With attribute `name`.
    #[must_use]
    pub fn attribute(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.request.attributes = self.request.attributes.with(name, value);
        self
    }

    /// With scalars.
    #[must_use]
    pub fn scalars(mut self, scalars: &[f64]) -> Self {
        self.scalars = scalars.to_vec();
        self
    }

    /// With an input of numbers that `dtype` holds exactly.
    #[must_use]
    pub fn input(mut self, shape: &[Dim], dtype: DType, numbers: &[f64]) -> Self {
        self.request.inputs.push(operand(shape, dtype));
        self.inputs.push(encode(dtype, numbers));
        self
    }

    /// With a dense param of numbers that `dtype` holds exactly.
    #[must_use]
    pub fn param(mut self, shape: &[usize], dtype: DType, numbers: &[f64]) -> Self {
        self.request.params.push(ParamOperand {
            shape: shape.iter().map(|&n| n as u64).collect(),
            layout: WeightLayout::Dense(dtype),
        });
        self.request.device_code.push(None);
        self.params.push(encode(dtype, numbers));
        self.decoders.push(None);
        self
    }

    /// With a packed param.
    #[must_use]
    pub fn packed(mut self, param: &Packed) -> Self {
        self.request.params.push(ParamOperand {
            shape: param.format.shape.to_vec(),
            layout: WeightLayout::Packed(Box::new(param.format.clone())),
        });
        self.request.device_code.push(param.device_code.clone());
        self.params.extend_from_slice(&param.segments);
        self.decoders.push(param.decoder);
        self
    }

    /// With an output that is written whole.
    #[must_use]
    pub fn output(mut self, shape: &[Dim], dtype: DType, expected: Near) -> Self {
        self.request.outputs.push(operand(shape, dtype));
        self.outputs.push(Target {
            start: None,
            expected,
        });
        self
    }

    /// With an output that holds `start` before the launch.
    #[must_use]
    pub fn updated(mut self, shape: &[Dim], dtype: DType, start: &[f64], expected: Near) -> Self {
        self.request.outputs.push(operand(shape, dtype));
        self.outputs.push(Target {
            start: Some(encode(dtype, &rounded(dtype, start))),
            expected,
        });
        self
    }
}

fn operand(shape: &[Dim], dtype: DType) -> Operand {
    Operand {
        shape: shape.to_vec(),
        dtype,
    }
}
