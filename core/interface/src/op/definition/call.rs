//! One use of an op, a node or a kernel request -> its operands, for the op's definition to check.

mod check;

use super::OpDefinition;
use crate::graph::{Attributes, Dim, Graph, Node, ValueType};
use crate::role::{KernelRequest, WeightLayout};
use crate::{DType, PluginError, Result};

/// The shape and dtype of an operand.
#[derive(Clone, Copy, Debug)]
pub struct OperandType<'a> {
    /// Extents.
    pub shape: &'a [Dim],
    /// Element type; symbolic in a graph.
    pub dtype: DType,
}

/// The shape of a param, and its layout where it is known.
#[derive(Clone, Copy, Debug)]
pub struct ParamType<'a> {
    /// Shape as in the checkpoint.
    pub shape: &'a [u64],
    /// Its layout in memory; none in a graph.
    pub layout: Option<&'a WeightLayout>,
}

/// One use of an op.
#[derive(Debug)]
pub struct OpCall<'a> {
    /// The op.
    pub definition: &'static OpDefinition,
    /// Attributes.
    pub attributes: &'a Attributes,
    /// Values read.
    pub inputs: Vec<OperandType<'a>>,
    /// Params read.
    pub params: Vec<ParamType<'a>>,
    /// Values written, as stated.
    pub outputs: Vec<OperandType<'a>>,
}

impl OperandType<'_> {
    /// The product of the fixed extents: elements of a token's part.
    pub fn fixed_elements(&self) -> u64 {
        let fixed = self.shape.iter().map(|dim| match dim {
            Dim::Fixed(extent) => *extent,
            Dim::Tokens | Dim::Boundaries => 1,
        });
        fixed.product()
    }

    /// The same as a value's type.
    pub fn to_value(self) -> ValueType {
        ValueType {
            shape: self.shape.to_vec(),
            dtype: self.dtype,
        }
    }
}

/// A type for messages: `f32 [T, 8]`.
fn shown(dtype: DType, shape: &[Dim]) -> String {
    let extents = shape.iter().map(|dim| match dim {
        Dim::Tokens => "T".to_owned(),
        Dim::Boundaries => "S + 1".to_owned(),
        Dim::Fixed(extent) => extent.to_string(),
    });
    let extents: Vec<String> = extents.collect();
    format!("{dtype} [{}]", extents.join(", "))
}

/// The dtype in which numbers of `dtype` are summed and normalized.
pub(in crate::op) fn reduced(dtype: DType) -> DType {
    match dtype {
        DType::COMPUTE | DType::REDUCE => DType::REDUCE,
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// The dtype of a param's gradient, output `index`, that comes of numbers of `dtype`: that of sums,
/// or bf16 where it is stated so.
pub(in crate::op) fn gradient_dtype(call: &OpCall<'_>, index: usize, dtype: DType) -> DType {
    match call.outputs[index].dtype {
        DType::BF16 => DType::BF16,
        _ => reduced(dtype),
    }
}

/// The type `[T, width]`.
pub(in crate::op) fn rows(width: u64, dtype: DType) -> ValueType {
    ValueType {
        shape: vec![Dim::Tokens, Dim::Fixed(width)],
        dtype,
    }
}

/// The type `[extents]`.
pub(in crate::op) fn fixed(extents: &[u64], dtype: DType) -> ValueType {
    ValueType {
        shape: extents.iter().map(|&extent| Dim::Fixed(extent)).collect(),
        dtype,
    }
}

/// The type `[T]`.
pub(in crate::op) fn per_token(dtype: DType) -> ValueType {
    ValueType {
        shape: vec![Dim::Tokens],
        dtype,
    }
}

impl<'a> OpCall<'a> {
    /// The use of an op by a node. All its values and params exist.
    pub fn of_node(definition: &'static OpDefinition, graph: &'a Graph, node: &'a Node) -> Self {
        let value = |&value: &usize| OperandType {
            shape: &graph.values[value].shape,
            dtype: graph.values[value].dtype,
        };
        let param = |&param: &usize| ParamType {
            shape: &graph.params[param].shape,
            layout: None,
        };
        OpCall {
            definition,
            attributes: &node.attributes,
            inputs: node.inputs.iter().map(value).collect(),
            params: node.params.iter().map(param).collect(),
            outputs: node.outputs.iter().map(value).collect(),
        }
    }

    /// The use of an op by a kernel.
    pub fn of_request(definition: &'static OpDefinition, request: &'a KernelRequest) -> Self {
        let operand = |operand: &'a crate::Operand| OperandType {
            shape: &operand.shape,
            dtype: operand.dtype,
        };
        let param = |param: &'a crate::ParamOperand| ParamType {
            shape: &param.shape,
            layout: Some(&param.layout),
        };
        OpCall {
            definition,
            attributes: &request.attributes,
            inputs: request.inputs.iter().map(operand).collect(),
            params: request.params.iter().map(param).collect(),
            outputs: request.outputs.iter().map(operand).collect(),
        }
    }

    /// A call that contradicts the op.
    pub fn invalid(&self, what: impl std::fmt::Display) -> PluginError {
        PluginError::invalid(format!("op `{}`: {what}", self.definition.name))
    }

    fn unlike(
        &self,
        role: &str,
        name: &str,
        found: &OperandType<'_>,
        expected: &str,
    ) -> PluginError {
        self.invalid(format!(
            "{role} `{name}` is {}, expected {expected}",
            shown(found.dtype, found.shape)
        ))
    }

    /// `error`, with the op's name before its message.
    fn named(&self, error: PluginError) -> PluginError {
        self.invalid(error.message)
    }

    /// The attribute `name`, a natural number of at least 1.
    pub(in crate::op) fn count(&self, name: &str) -> Result<u64> {
        match self
            .attributes
            .count(name)
            .map_err(|error| self.named(error))?
        {
            0 => Err(self.invalid(format!("attribute `{name}` is 0, expected at least 1"))),
            count => Ok(count as u64),
        }
    }

    /// Checks that input `index` holds floats, and gives its type.
    pub(in crate::op) fn float(&self, index: usize) -> Result<ValueType> {
        let found = self.inputs[index];
        if found.dtype.is_float() {
            return Ok(found.to_value());
        }
        Err(self.unlike("input", self.definition.input_name(index), &found, "floats"))
    }

    /// Checks that output `index` is stated with a float dtype, and gives that.
    pub(in crate::op) fn stated_float(&self, index: usize) -> Result<DType> {
        let found = self.outputs[index];
        if found.dtype.is_float() {
            return Ok(found.dtype);
        }
        let name = self.definition.outputs[index].name;
        Err(self.unlike("output", name, &found, "floats"))
    }

    /// Checks that output 0, a param that is rounded stochastically, is stated in bf16.
    pub(in crate::op) fn expect_narrow_param(&self) -> Result<()> {
        let found = self.outputs[0];
        if found.dtype == DType::BF16 {
            return Ok(());
        }
        let name = self.definition.outputs[0].name;
        Err(self.unlike(
            "output",
            name,
            &found,
            "bf16, to which it is rounded stochastically",
        ))
    }

    /// Checks that input `index` is `[T, width]` of floats, and gives the width, at least 1.
    pub(in crate::op) fn width(&self, index: usize) -> Result<u64> {
        let found = self.inputs[index];
        match found.shape {
            [Dim::Tokens, Dim::Fixed(width)] if *width > 0 && found.dtype.is_float() => Ok(*width),
            _ => {
                let name = self.definition.input_name(index);
                Err(self.unlike("input", name, &found, "floats [T, width]"))
            }
        }
    }

    /// Checks that input `index` is `[T, columns]` or `[T]` of floats, and gives the columns.
    pub(in crate::op) fn columns(&self, index: usize) -> Result<u64> {
        match self.inputs[index].shape {
            [Dim::Tokens] => self.float(index).map(|_| 1),
            _ => self.width(index),
        }
    }

    /// Checks that input `index` is of the type `expected`.
    pub(in crate::op) fn expect(&self, index: usize, expected: &ValueType) -> Result<()> {
        let found = self.inputs[index];
        if found.shape == expected.shape && found.dtype == expected.dtype {
            return Ok(());
        }
        let expected = shown(expected.dtype, &expected.shape);
        Err(self.unlike(
            "input",
            self.definition.input_name(index),
            &found,
            &expected,
        ))
    }

    /// Checks that input `index`, if it is there, is of the type `expected`.
    pub(in crate::op) fn expect_optional(&self, index: usize, expected: &ValueType) -> Result<()> {
        match self.inputs.get(index) {
            Some(_) => self.expect(index, expected),
            None => Ok(()),
        }
    }

    /// Checks that the inputs `indices` are of the type `expected`.
    pub(in crate::op) fn expect_all(&self, indices: &[usize], expected: &ValueType) -> Result<()> {
        let mut indices = indices.iter();
        indices.try_for_each(|&index| self.expect(index, expected))
    }

    /// Checks that the inputs `indices` are `[T]` i32.
    pub(in crate::op) fn expect_integers(&self, indices: &[usize]) -> Result<()> {
        self.expect_all(indices, &per_token(DType::I32))
    }

    /// Checks that input `index` is `[S + 1]` i32.
    pub(in crate::op) fn expect_boundaries(&self, index: usize) -> Result<()> {
        let expected = ValueType {
            shape: vec![Dim::Boundaries],
            dtype: DType::I32,
        };
        self.expect(index, &expected)
    }

    /// Checks that param `index`, if it is there, has the shape `expected`.
    pub(in crate::op) fn expect_param(&self, index: usize, expected: &[u64]) -> Result<()> {
        match self.params.get(index) {
            Some(param) if param.shape != expected => {
                let name = self.definition.params[index].name;
                let found = param.shape;
                Err(self.invalid(format!(
                    "param `{name}` is {found:?}, expected {expected:?}"
                )))
            }
            _ => Ok(()),
        }
    }

    /// The extents of param `index`, a matrix.
    pub(in crate::op) fn matrix(&self, index: usize) -> Result<[u64; 2]> {
        let found = self.params[index].shape;
        <[u64; 2]>::try_from(found).map_err(|_| {
            let name = self.definition.params[index].name;
            self.invalid(format!("param `{name}` is {found:?}, expected a matrix"))
        })
    }

    /// Checks that param `index` has `expected` elements, in any shape.
    pub(in crate::op) fn expect_elements(&self, index: usize, expected: u64) -> Result<()> {
        let found = self.params[index].shape;
        if elements(found) == Some(expected) {
            return Ok(());
        }
        let name = self.definition.params[index].name;
        Err(self.invalid(format!(
            "param `{name}` is {found:?}, expected {expected} elements"
        )))
    }

    /// Checks that output `index` is stated with fixed extents, and gives them.
    pub(in crate::op) fn stated_extents(&self, index: usize) -> Result<Vec<u64>> {
        let found = self.outputs[index];
        let extents = found.shape.iter().map(|dim| match dim {
            Dim::Fixed(extent) => Some(*extent),
            _ => None,
        });
        extents.collect::<Option<Vec<u64>>>().ok_or_else(|| {
            let name = self.definition.outputs[index].name;
            self.unlike("output", name, &found, "fixed extents")
        })
    }

    /// Checks that output `index` is stated with `expected` elements in fixed extents, and gives
    /// them.
    pub(in crate::op) fn stated_elements(&self, index: usize, expected: u64) -> Result<Vec<u64>> {
        let extents = self.stated_extents(index)?;
        if elements(&extents) == Some(expected) {
            return Ok(extents);
        }
        let name = self.definition.outputs[index].name;
        let expected = format!("{expected} elements");
        Err(self.unlike("output", name, &self.outputs[index], &expected))
    }
}

/// The product of extents; none where it is too large.
fn elements(extents: &[u64]) -> Option<u64> {
    extents
        .iter()
        .try_fold(1u64, |n, &extent| n.checked_mul(extent))
}
