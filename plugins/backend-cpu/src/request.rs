//! A kernel request -> the operands of a launch, each checked against the op's definition.

use espalier_interface::graph::{Attributes, Dim};
use espalier_interface::{
    DType, ErrorCode, KernelRequest, Operand, ParamOperand, PluginError, Result, WeightLayout,
};

/// An expected range of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Name for errors, such as `input 1`.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<Dim>,
    /// Whether the launch writes it.
    pub written: bool,
}

impl Expected {
    /// Bytes for `tokens` and `sequences`; none where that overflows.
    pub fn bytes(&self, tokens: u64, sequences: u64) -> Option<u64> {
        self.shape
            .iter()
            .try_fold(self.dtype.bytes(), |bytes, dim| {
                bytes.checked_mul(match *dim {
                    Dim::Tokens => tokens,
                    Dim::Boundaries => sequences.checked_add(1)?,
                    Dim::Fixed(extent) => extent,
                })
            })
    }
}

/// A request as read by an op.
pub struct Asked<'a> {
    /// The request.
    pub request: &'a KernelRequest,
}

impl<'a> Asked<'a> {
    /// A failure of kind `code` that names the op.
    fn fail(&self, code: ErrorCode, what: String) -> PluginError {
        PluginError::new(
            code,
            format!("op `{}` on backend `cpu`: {what}", self.request.op),
        )
    }

    /// A request that contradicts the op.
    pub fn invalid(&self, what: String) -> PluginError {
        self.fail(ErrorCode::INVALID, what)
    }

    /// A request that this backend does not serve.
    pub fn unsupported(&self, what: String) -> PluginError {
        self.fail(ErrorCode::UNSUPPORTED, what)
    }

    /// A dtype that this backend does not serve.
    pub fn bad_dtype(&self, found: DType, expected: &str) -> PluginError {
        self.unsupported(format!("dtype {found}, expected {expected}"))
    }

    /// The op's attributes.
    pub fn attributes(&self) -> &'a Attributes {
        &self.request.attributes
    }

    /// Checks the numbers of operands, and that no attribute but `known` is set.
    pub fn check(&self, counts: [usize; 3], known: &[&str]) -> Result<()> {
        let r = self.request;
        let found = [r.inputs.len(), r.params.len(), r.outputs.len()];
        if found != counts {
            return Err(self.invalid(format!(
                "{} inputs, {} params and {} outputs, expected {}, {} and {}",
                found[0], found[1], found[2], counts[0], counts[1], counts[2]
            )));
        }
        let extra = r.attributes.0.iter().find(|(name, value)| {
            !value.is_null() && *name != "site" && !known.contains(&name.as_str())
        });
        match extra {
            None => Ok(()),
            Some((name, value)) => {
                Err(self.unsupported(format!("unknown attribute `{name}` = {value}")))
            }
        }
    }

    /// Input `index`.
    pub fn input(&self, index: usize) -> &'a Operand {
        &self.request.inputs[index]
    }

    /// Output `index`.
    pub fn output(&self, index: usize) -> &'a Operand {
        &self.request.outputs[index]
    }

    /// The width of a `[T, width]` operand.
    pub fn width(&self, operand: &Operand, name: &str) -> Result<usize> {
        match operand.shape[..] {
            [Dim::Tokens, Dim::Fixed(width)] if width > 0 => Ok(width as usize),
            _ => Err(self.invalid(format!(
                "{name} has shape {:?}, expected tokens and a fixed width",
                operand.shape
            ))),
        }
    }

    /// The number of elements of an operand without symbolic extents.
    pub fn fixed(&self, operand: &Operand, name: &str) -> Result<usize> {
        let elements = operand.shape.iter().try_fold(1u64, |n, dim| match dim {
            Dim::Fixed(extent) => n.checked_mul(*extent),
            _ => None,
        });
        elements.map(|n| n as usize).ok_or_else(|| {
            let what = format!(
                "{name} has shape {:?}, expected fixed extents",
                operand.shape
            );
            self.invalid(what)
        })
    }

    /// Checks an operand's dtype and shape.
    pub fn expect(&self, operand: &Operand, name: &str, shape: &[Dim], dtype: DType) -> Result<()> {
        if operand.shape == shape && operand.dtype == dtype {
            return Ok(());
        }
        Err(self.invalid(format!(
            "{name} is {} {:?}, expected {dtype} {shape:?}",
            operand.dtype, operand.shape
        )))
    }

    /// Checks that `operands` have the dtype and shape of `model`.
    pub fn expect_like(&self, model: &Operand, operands: &[(&Operand, &str)]) -> Result<()> {
        operands
            .iter()
            .try_for_each(|(operand, name)| self.expect(operand, name, &model.shape, model.dtype))
    }

    /// The dtype of dense param `index`, of the given shape.
    pub fn dense(&self, index: usize, name: &str, shape: &[u64]) -> Result<DType> {
        let param: &ParamOperand = &self.request.params[index];
        if param.shape != shape {
            return Err(self.invalid(format!(
                "{name} has shape {:?}, expected {shape:?}",
                param.shape
            )));
        }
        match &param.layout {
            WeightLayout::Dense(dtype) => Ok(*dtype),
            WeightLayout::Packed(format) => Err(self.unsupported(format!(
                "{name} is packed by quantizer `{}`, expected a dense one",
                format.quantizer
            ))),
        }
    }

    /// The expected ranges of a launch, in their order.
    pub fn ranges(&self) -> Vec<Expected> {
        let operand = |name: String, operand: &Operand, written: bool| Expected {
            name,
            dtype: operand.dtype,
            shape: operand.shape.clone(),
            written,
        };
        let mut all = Vec::new();
        for (i, input) in self.request.inputs.iter().enumerate() {
            all.push(operand(format!("input {i}"), input, false));
        }
        for (i, param) in self.request.params.iter().enumerate() {
            let fixed = |n: &u64| Dim::Fixed(*n);
            match &param.layout {
                WeightLayout::Dense(dtype) => all.push(Expected {
                    name: format!("param {i}"),
                    dtype: *dtype,
                    shape: param.shape.iter().map(fixed).collect(),
                    written: false,
                }),
                WeightLayout::Packed(format) => {
                    all.extend(format.segments.iter().map(|s| Expected {
                        name: format!("segment `{}` of param {i}", s.name),
                        dtype: s.dtype,
                        shape: vec![fixed(&s.len)],
                        written: false,
                    }))
                }
            }
        }
        for (i, output) in self.request.outputs.iter().enumerate() {
            all.push(operand(format!("output {i}"), output, true));
        }
        all
    }
}
