//! A kernel request, which the boundary has checked against its op's definition -> the operands
//! of a launch.

use espalier_interface::graph::{Attributes, Dim};
use espalier_interface::{
    DType, ErrorCode, KernelRequest, OpId, Operand, PluginError, Result, WeightLayout, op,
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
    /// Name of the backend that it is made of, for errors.
    pub backend: &'a str,
}

impl<'a> Asked<'a> {
    /// A failure of kind `code` that names the op.
    fn fail(&self, code: ErrorCode, what: String) -> PluginError {
        PluginError::new(
            code,
            format!(
                "op `{}` on backend `{}`: {what}",
                self.request.op, self.backend
            ),
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

    /// Input `index`.
    pub fn input(&self, index: usize) -> &'a Operand {
        &self.request.inputs[index]
    }

    /// Output `index`.
    pub fn output(&self, index: usize) -> &'a Operand {
        &self.request.outputs[index]
    }

    /// The columns of a `[T, columns]` operand.
    pub fn columns(&self, operand: &Operand) -> usize {
        match operand.shape.last() {
            Some(Dim::Fixed(columns)) => *columns as usize,
            _ => 1,
        }
    }

    /// Most tokens of a launch.
    pub fn max_tokens(&self) -> usize {
        self.request.max_tokens as usize
    }

    /// The number of elements of an operand without symbolic extents.
    pub fn elements(&self, operand: &Operand) -> usize {
        let extents = operand.shape.iter().map(|dim| match dim {
            Dim::Fixed(extent) => *extent as usize,
            _ => 1,
        });
        extents.product()
    }

    /// Rows and columns of param `index`; a vector is one row.
    pub fn matrix(&self, index: usize) -> Result<[usize; 2]> {
        match self.request.params[index].shape[..] {
            [rows, cols] => Ok([rows as usize, cols as usize]),
            [cols] => Ok([1, cols as usize]),
            ref found => Err(self.invalid(format!("param {index} has shape {found:?}"))),
        }
    }

    /// The attribute `alpha`, 1 where it is absent.
    pub fn alpha(&self) -> f64 {
        self.attributes().optional_number("alpha").unwrap_or(1.0)
    }

    /// The index of the requested op and version in `ops`.
    ///
    /// # Errors
    /// `UNSUPPORTED`, with what there is.
    pub fn find(&self, ops: &[OpId]) -> Result<usize> {
        let wanted = self.request;
        let mut of_name = ops.iter().filter(|op| op.name == wanted.op).peekable();
        if of_name.peek().is_none() {
            let names: Vec<_> = ops.iter().map(OpId::to_string).collect();
            let names = names.join(", ");
            return Err(self.unsupported(format!("not known here; known are {names}")));
        }
        let is_wanted = |op: &OpId| op.name == wanted.op && op.version == wanted.version;
        ops.iter().position(is_wanted).ok_or_else(|| {
            let known: Vec<_> = of_name.map(|op| op.version.to_string()).collect();
            let (found, known) = (wanted.version, known.join(" or "));
            self.unsupported(format!("version {found}, expected {known}"))
        })
    }

    /// The dtype in which dense param `index` is stored.
    pub fn stored(&self, index: usize) -> Result<DType> {
        match &self.request.params[index].layout {
            WeightLayout::Dense(dtype) => Ok(*dtype),
            WeightLayout::Packed(format) => Err(self.unsupported(format!(
                "param {index} is packed by quantizer `{}`, expected a dense one",
                format.quantizer
            ))),
        }
    }

    /// Places of the scalars `names` among those of a launch.
    pub fn scalars<const N: usize>(&self, names: [&str; N]) -> Result<[usize; N]> {
        let request = self.request;
        let definition = op::definition(&request.op, request.version);
        let mut places = [0; N];
        for (place, name) in places.iter_mut().zip(names) {
            let found = definition.and_then(|op| op.scalar(name));
            *place = found.ok_or_else(|| self.unsupported(format!("no scalar `{name}`")))?;
        }
        Ok(places)
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
