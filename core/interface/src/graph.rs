//! A unit's computation as data: nodes over values in single-assignment form, and the builder authors use.
//!
//! Shape legend: `T` packed tokens, `S` sequences, everything else is fixed when the graph is made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::operands::operands;
use crate::{DType, PluginError, Result};

/// One extent of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    /// `T`: packed tokens of the micro-batch; varies from step to step below a planned maximum, may be 0.
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
    /// The output of that name of the unit before; in an adapter's fragment, the input of the site.
    Previous(String),
    /// A tensor of the micro-batch: see [`batch`].
    Batch(String),
}

/// Names and types of the tensors that every micro-batch has.
pub mod batch {
    /// Token ids, `[T]` i32.
    pub const TOKENS: &str = "tokens";
    /// Position of each token in its sequence, `[T]` i32.
    pub const POSITIONS: &str = "positions";
    /// Start of each sequence and the end of the last, `[S + 1]` i32.
    pub const CU_SEQLENS: &str = "cu_seqlens";
    /// The token to predict at each place, `[T]` i32, -100 where nothing is trained.
    pub const LABELS: &str = "labels";
    /// Index of each token's sequence within the optimizer step, over all ranks, `[T]` i32.
    pub const SEQUENCES: &str = "sequences";
}

/// An input of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Input {
    /// Where it comes from.
    pub source: Source,
    /// The value it becomes.
    pub value: ValueId,
}

/// A param of a graph under its local name; a unit's prefix makes it global.
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
    /// The name by which the next unit or the core asks for it.
    pub name: String,
    /// The value it is.
    pub value: ValueId,
}

/// Attributes of a node: JSON values by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attributes(pub BTreeMap<String, Json>);

impl Attributes {
    /// No attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// These and `name = value`.
    pub fn with(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// The number `name`.
    ///
    /// # Errors
    /// `INVALID` where it is missing or not a number.
    pub fn number(&self, name: &str) -> Result<f64> {
        let found = self.0.get(name);
        found
            .and_then(Json::as_f64)
            .ok_or_else(|| expected(name, "a number", found))
    }

    /// The number `name`, or nothing where it is absent or null.
    pub fn optional_number(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Json::as_f64)
    }

    /// The natural number `name`.
    ///
    /// # Errors
    /// `INVALID` where it is missing or not a natural number.
    pub fn count(&self, name: &str) -> Result<usize> {
        let found = self.0.get(name);
        let number = found
            .and_then(Json::as_u64)
            .and_then(|n| usize::try_from(n).ok());
        number.ok_or_else(|| expected(name, "a natural number", found))
    }

    /// True where the attribute `name` is `true`; an absent one is false.
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Json::as_bool).unwrap_or(false)
    }

    /// The text `name`, or nothing.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Json::as_str)
    }

    /// The list of numbers `name`.
    ///
    /// # Errors
    /// `INVALID` where it is missing or not a list of numbers.
    pub fn numbers(&self, name: &str) -> Result<Vec<f64>> {
        let found = self.0.get(name);
        let list = found.and_then(Json::as_array);
        let numbers = list.and_then(|l| l.iter().map(Json::as_f64).collect::<Option<Vec<_>>>());
        numbers.ok_or_else(|| expected(name, "a list of numbers", found))
    }
}

fn expected(name: &str, kind: &str, found: Option<&Json>) -> PluginError {
    let found = found.map_or("nothing".to_owned(), Json::to_string);
    PluginError::invalid(format!(
        "attribute `{name}`: expected {kind}, found {found}"
    ))
}

/// One operation. [`crate::op`] lists the names, their operands and attributes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Name of the op.
    pub op: String,
    /// Version of the op's meaning.
    pub version: u32,
    /// Values read, in the op's order.
    pub inputs: Vec<ValueId>,
    /// Params read, in the op's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<ParamId>,
    /// Values made, in the op's order.
    pub outputs: Vec<ValueId>,
    /// Attributes.
    #[serde(default)]
    pub attributes: Attributes,
}

/// A computation as data. Nodes stand in an order in which every value is made before it is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// A name for people.
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

    /// The batch tensor `name` as an input; asked for twice, it is the same value.
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
    /// Where `outputs` is empty: every op makes a value.
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
    /// Where that extent is symbolic.
    pub fn fixed(&self, value: ValueId, axis: usize) -> u64 {
        match self.values[value].shape[axis] {
            Dim::Fixed(extent) => extent,
            symbolic => panic!("extent {axis} of value {value} is {symbolic:?}"),
        }
    }

    /// Checks that every index is in range, every value is made once and before it is read, and that known ops have their
    /// operands.
    ///
    /// # Errors
    /// `INVALID`, naming the graph, the node and what is wrong with it.
    pub fn validate(&self) -> Result<()> {
        let fail = |what: String| {
            Err(PluginError::invalid(format!(
                "graph `{}`: {what}",
                self.name
            )))
        };
        let mut made = vec![false; self.values.len()];
        for input in &self.inputs {
            match made.get_mut(input.value) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return fail(format!("value {} is two inputs", input.value)),
                None => return fail(format!("input value {} does not exist", input.value)),
            }
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let at = format!("node {index} ({})", node.op);
            let found = [node.inputs.len(), node.params.len(), node.outputs.len()];
            // An op that is not known here may be a backend's own; it makes something in any case.
            let expected =
                operands(&node.op).unwrap_or([0..=usize::MAX, 0..=usize::MAX, 1..=usize::MAX]);
            if !expected
                .iter()
                .zip(&found)
                .all(|(range, count)| range.contains(count))
            {
                let [inputs, params, outputs] = found;
                return fail(format!(
                    "{at} has {inputs} inputs, {params} params and {outputs} outputs"
                ));
            }
            for &value in &node.inputs {
                if !made.get(value).copied().unwrap_or(false) {
                    return fail(format!("{at} reads value {value} before it is made"));
                }
            }
            for &param in &node.params {
                if param >= self.params.len() {
                    return fail(format!("{at} reads param {param}, which does not exist"));
                }
            }
            for &value in &node.outputs {
                match made.get_mut(value) {
                    Some(seen) if !*seen => *seen = true,
                    Some(_) => return fail(format!("{at} makes value {value} a second time")),
                    None => return fail(format!("{at} makes value {value}, which has no type")),
                }
            }
        }
        for output in &self.outputs {
            if !made.get(output.value).copied().unwrap_or(false) {
                return fail(format!("output `{}` is never made", output.name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_read_before_it_is_made_is_refused() {
        let mut graph = Graph::new("g");
        let x = graph.input(
            Source::Previous("hidden".into()),
            [Dim::Tokens],
            DType::COMPUTE,
        );
        let late = graph.value([Dim::Tokens], DType::COMPUTE);
        let ty = graph.type_of(x).clone();
        let y = graph.node("add", &[x, late], &[], vec![ty], Attributes::new());
        graph.output("hidden", y);
        let message = graph.validate().expect_err("value 1 is never made").message;
        assert!(
            message.contains("reads value 1 before it is made"),
            "{message}"
        );
    }

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
