//! A unit's computation as data: nodes over values in single-assignment form, and a builder for
//! authors.
//!
//! Shapes: `T` packed tokens, `S` sequences; all other extents are fixed when the graph is made.

mod attributes;
pub mod batch;

use serde::{Deserialize, Serialize};

use crate::DType;

pub use attributes::Attributes;

/// One extent of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    /// `T`: packed tokens of the micro-batch. It varies from step to step below a planned maximum,
    /// and may be 0.
    Tokens,
    /// `S + 1`: boundaries of the packed sequences.
    Boundaries,
    /// A number known when the graph is made.
    Fixed(u64),
}

/// The shape and dtype of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ValueType {
    /// Extents, slowest first.
    pub shape: Vec<Dim>,
    /// Element type; [`DType::COMPUTE`] and [`DType::REDUCE`] are resolved by the core.
    pub dtype: DType,
}

/// A value of a graph, by index into [`Graph::values`].
pub type ValueId = usize;

/// A param of a graph, by index into [`Graph::params`].
pub type ParamId = usize;

/// Where a graph's input comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The output of that name of the previous unit. In an adapter's fragment, the input of the
    /// site.
    Previous(String),
    /// A tensor of the micro-batch: see [`batch`].
    Batch(String),
}

/// An input of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Input {
    /// Its source.
    pub source: Source,
    /// The value that holds it.
    pub value: ValueId,
}

/// A param of a graph under its local name; a unit's prefix makes the name global.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GraphParam {
    /// Local name, such as `self_attn.q_proj.weight`.
    pub name: String,
    /// Shape as in the checkpoint; a linear's weight is `[out, in]`.
    pub shape: Vec<u64>,
}

/// An output of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Output {
    /// The name under which the next unit or the core reads it.
    pub name: String,
    /// The value that holds it.
    pub value: ValueId,
}

/// One operation. [`crate::op`] lists the names, their operands and attributes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Name of the op.
    pub op: String,
    /// Version of the op's definition.
    pub version: u32,
    /// Values read, in the op's order.
    pub inputs: Vec<ValueId>,
    /// Params read, in the op's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<ParamId>,
    /// Values written, in the op's order.
    pub outputs: Vec<ValueId>,
    /// Attributes.
    #[serde(default)]
    pub attributes: Attributes,
}

/// A computation as data. Nodes are in an order in which every value is written before it is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// A name for messages.
    pub name: String,
    /// Inputs.
    pub inputs: Vec<Input>,
    /// Params.
    pub params: Vec<GraphParam>,
    /// Types of all values.
    pub values: Vec<ValueType>,
    /// Operations, in order.
    pub nodes: Vec<Node>,
    /// Outputs.
    pub outputs: Vec<Output>,
}

impl Graph {
    /// An empty graph called `name`.
    pub fn new(name: &str) -> Self {
        Graph {
            name: name.to_owned(),
            ..Graph::default()
        }
    }

    /// A new value of the given type.
    pub fn value(&mut self, shape: impl Into<Vec<Dim>>, dtype: DType) -> ValueId {
        self.values.push(ValueType {
            shape: shape.into(),
            dtype,
        });
        self.values.len() - 1
    }

    /// A new input from `source`.
    pub fn input(&mut self, source: Source, shape: impl Into<Vec<Dim>>, dtype: DType) -> ValueId {
        let value = self.value(shape, dtype);
        self.inputs.push(Input { source, value });
        value
    }

    /// The batch tensor `name` as an input. Repeated calls return the same value.
    pub fn batch(&mut self, name: &str) -> ValueId {
        let source = Source::Batch(name.to_owned());
        if let Some(input) = self.inputs.iter().find(|input| input.source == source) {
            return input.value;
        }
        let dim = if name == batch::CU_SEQLENS {
            Dim::Boundaries
        } else {
            Dim::Tokens
        };
        self.input(source, [dim], DType::I32)
    }

    /// A new param under its local name.
    pub fn param(&mut self, name: &str, shape: impl Into<Vec<u64>>) -> ParamId {
        self.params.push(GraphParam {
            name: name.to_owned(),
            shape: shape.into(),
        });
        self.params.len() - 1
    }

    /// Appends a node and returns its first output.
    ///
    /// # Panics
    /// If `outputs` is empty: every op writes a value.
    pub fn node(
        &mut self,
        op: &str,
        inputs: &[ValueId],
        params: &[ParamId],
        outputs: Vec<ValueType>,
        attributes: Attributes,
    ) -> ValueId {
        assert!(!outputs.is_empty(), "op `{op}` makes no value");
        let first = self.values.len();
        let made = first..first + outputs.len();
        self.values.extend(outputs);
        self.nodes.push(Node {
            op: op.to_owned(),
            version: 1,
            inputs: inputs.to_vec(),
            params: params.to_vec(),
            outputs: made.collect(),
            attributes,
        });
        first
    }

    /// Names `value` as an output.
    pub fn output(&mut self, name: &str, value: ValueId) {
        self.outputs.push(Output {
            name: name.to_owned(),
            value,
        });
    }

    /// The type of `value`.
    pub fn type_of(&self, value: ValueId) -> &ValueType {
        &self.values[value]
    }

    /// The fixed extent `axis` of `value`.
    ///
    /// # Panics
    /// If that extent is symbolic.
    pub fn fixed(&self, value: ValueId, axis: usize) -> u64 {
        match self.values[value].shape[axis] {
            Dim::Fixed(extent) => extent,
            symbolic => panic!("extent {axis} of value {value} is {symbolic:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_a_graph_whole() {
        let mut graph = Graph::new("g");
        let tokens = graph.batch(batch::TOKENS);
        let weight = graph.param("embed.weight", [10, 4]);
        let ty = ValueType {
            shape: vec![Dim::Tokens, Dim::Fixed(4)],
            dtype: DType::COMPUTE,
        };
        let attributes = Attributes::new().with("scale", 0.1f64);
        let y = graph.node("embedding", &[tokens], &[weight], vec![ty], attributes);
        graph.output("hidden", y);
        let text = serde_json::to_string(&graph).expect("a graph is plain data");
        assert_eq!(
            serde_json::from_str::<Graph>(&text).expect("its own text"),
            graph
        );
    }
}
