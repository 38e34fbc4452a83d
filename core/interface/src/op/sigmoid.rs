//! `sigmoid`, a primitive: x -> `1 / (1 + e^-x)`, element by element.

use super::definition::{OpDefinition, written};
use crate::graph::{Attributes, Graph, ValueId};

pub(super) static SIGMOID: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    ..OpDefinition::primitive("sigmoid", |call| Ok(vec![call.float(0)?]))
};

/// `1 / (1 + e^-x)`, element by element.
pub fn sigmoid(graph: &mut Graph, x: ValueId) -> ValueId {
    let ty = graph.type_of(x).clone();
    graph.node("sigmoid", &[x], &[], vec![ty], Attributes::new())
}
