//! A call under decomposition -> the calls of its parts, with values of their own.

use espalier_interface::graph::{Attributes, Dim, Graph, ValueId, ValueType};
use espalier_interface::{DType, Result};

use super::unfit;
use crate::grad::{GradNode, Target};
use crate::params::Dtypes;

/// A call that is to be decomposed.
pub(super) struct Whole<'a> {
    pub op: &'a str,
    pub version: u32,
    pub attributes: &'a Attributes,
    pub inputs: &'a [ValueId],
    pub params: &'a [usize],
    pub outputs: &'a [Target],
}

impl Whole<'_> {
    /// The value of its first output.
    ///
    /// # Errors
    /// Where that is the gradient of a param.
    pub fn value(&self) -> Result<ValueId> {
        match self.outputs[0] {
            Target::Value(value) => Ok(value),
            Target::Gradient(_) => Err(unfit(self, "its output is a gradient of a param")),
        }
    }
}

/// The parts of a call.
pub(super) struct Parts<'a> {
    graph: &'a mut Graph,
    dtypes: Dtypes,
    nodes: Vec<GradNode>,
}

impl<'a> Parts<'a> {
    /// No part yet.
    pub fn new(graph: &'a mut Graph, dtypes: Dtypes) -> Self {
        Parts {
            graph,
            dtypes,
            nodes: Vec::new(),
        }
    }

    /// The parts in order.
    pub fn into_nodes(self) -> Vec<GradNode> {
        self.nodes
    }

    /// The columns of a value `[T, columns]`.
    pub fn columns(&self, value: ValueId) -> u64 {
        match self.graph.values[value].shape.last() {
            Some(Dim::Fixed(columns)) => *columns,
            _ => 1,
        }
    }

    /// The number of elements of a param.
    pub fn elements(&self, param: usize) -> u64 {
        self.graph.params[param].shape.iter().product()
    }

    /// Appends `op` with one output that is put into `target`.
    pub fn emit(
        &mut self,
        op: &'static str,
        inputs: &[ValueId],
        target: Target,
        attributes: Attributes,
    ) {
        self.emit_with(op, inputs, &[], target, attributes);
    }

    /// [`Parts::emit`] of an op that reads params.
    pub fn emit_with(
        &mut self,
        op: &'static str,
        inputs: &[ValueId],
        params: &[usize],
        target: Target,
        attributes: Attributes,
    ) {
        self.nodes.push(GradNode {
            op,
            version: 1,
            inputs: inputs.to_vec(),
            params: params.to_vec(),
            outputs: vec![target],
            attributes,
            dropout: None,
            site: None,
        });
    }

    /// Appends `op` with one new output of `shape` in the reduce dtype.
    pub fn made(
        &mut self,
        op: &'static str,
        inputs: &[ValueId],
        shape: Vec<Dim>,
        attributes: Attributes,
    ) -> ValueId {
        let value = self.value(shape, DType::REDUCE);
        self.emit(op, inputs, Target::Value(value), attributes);
        value
    }

    /// Appends an elementwise `op`, whose output is like its first input.
    pub fn map(&mut self, op: &'static str, inputs: &[ValueId], attributes: Attributes) -> ValueId {
        let shape = self.graph.values[inputs[0]].shape.clone();
        self.made(op, inputs, shape, attributes)
    }

    /// `a b`.
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.map("mul", &[a, b], Attributes::new())
    }

    /// `a + alpha b`.
    pub fn add(&mut self, a: ValueId, b: ValueId, alpha: f64) -> ValueId {
        self.map("add", &[a, b], Attributes::new().with("alpha", alpha))
    }

    /// Rows with each of their columns repeated, to `columns` of them.
    pub fn repeated(&mut self, x: ValueId, columns: u64) -> ValueId {
        let times = columns / self.columns(x).max(1);
        let attributes = Attributes::new().with("repeat", times);
        self.made("expand", &[x], rows(columns), attributes)
    }

    /// Rows repeated one after the other, to `columns` columns.
    pub fn tiled(&mut self, x: ValueId, columns: u64) -> ValueId {
        let times = columns / self.columns(x).max(1);
        if times == 1 {
            return x;
        }
        let attributes = Attributes::new().with("tile", times);
        self.made("expand", &[x], rows(columns), attributes)
    }

    /// The sums of each `group` neighbouring columns.
    pub fn group_sums(&mut self, x: ValueId, group: u64) -> ValueId {
        let shape = rows(self.columns(x) / group.max(1));
        let attributes = Attributes::new().with("repeat", group);
        self.made("contract", &[x], shape, attributes)
    }

    /// A param as rows of `columns` columns, in the reduce dtype.
    pub fn param(&mut self, param: usize, columns: u64) -> ValueId {
        let tile = columns / self.elements(param).max(1);
        let value = self.value(rows(columns), DType::REDUCE);
        let (to, attributes) = (Target::Value(value), Attributes::new().with("tile", tile));
        self.emit_with("broadcast_param", &[], &[param], to, attributes);
        value
    }

    /// `x` in the reduce dtype.
    pub fn wide(&mut self, x: ValueId) -> ValueId {
        if self.resolved(x) == self.dtypes.reduce {
            return x;
        }
        self.map("cast", &[x], Attributes::new())
    }

    /// `x`, of the reduce dtype, as rounded to the dtype of `model`, in the reduce dtype.
    pub fn rounded(&mut self, x: ValueId, model: ValueId) -> ValueId {
        if self.resolved(model) == self.dtypes.reduce {
            return x;
        }
        let (shape, dtype) = (self.graph.values[x].shape.clone(), self.resolved(model));
        let narrow = self.value(shape, dtype);
        self.emit("cast", &[x], Target::Value(narrow), Attributes::new());
        self.wide(narrow)
    }

    /// Appends an elementwise `op` of the reduce dtype whose result is put into `target`, rounded
    /// to the target's dtype.
    pub fn finish(
        &mut self,
        op: &'static str,
        inputs: &[ValueId],
        target: Target,
        attributes: Attributes,
    ) {
        match target {
            Target::Value(value) if self.resolved(value) != self.dtypes.reduce => {
                let wide = self.map(op, inputs, attributes);
                self.emit("cast", &[wide], target, Attributes::new());
            }
            _ => self.emit(op, inputs, target, attributes),
        }
    }

    /// A new value of the type of `value`.
    pub fn like(&mut self, value: ValueId) -> ValueId {
        let ty = self.graph.values[value].clone();
        self.value(ty.shape, ty.dtype)
    }

    fn value(&mut self, shape: Vec<Dim>, dtype: DType) -> ValueId {
        self.graph.values.push(ValueType { shape, dtype });
        self.graph.values.len() - 1
    }

    /// The dtype of a value in this run.
    fn resolved(&self, value: ValueId) -> DType {
        self.dtypes.resolve(self.graph.values[value].dtype)
    }
}

/// The shape `[T, columns]`.
pub(super) fn rows(columns: u64) -> Vec<Dim> {
    vec![Dim::Tokens, Dim::Fixed(columns)]
}
