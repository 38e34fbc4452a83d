//! `tanh`: x -> the hyperbolic tangent, element by element, as GELU's approximation and soft caps
//! need it.

use super::definition::{OpDefinition, written};
use crate::graph::{Attributes, Graph, ValueId};

pub(super) static TANH: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    ..OpDefinition::new("tanh", |call| Ok(vec![call.float(0)?]))
};

/// The hyperbolic tangent, element by element.
pub fn tanh(graph: &mut Graph, x: ValueId) -> ValueId {
    let ty = graph.type_of(x).clone();
    graph.node("tanh", &[x], &[], vec![ty], Attributes::new())
}
