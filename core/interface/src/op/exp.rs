//! `exp`, a primitive: x -> `e^x`, element by element.

use super::definition::{OpDefinition, written};
use crate::graph::{Attributes, Graph, ValueId};

pub(super) static EXP: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    ..OpDefinition::primitive("exp", |call| Ok(vec![call.float(0)?]))
};

/// `e^x`, element by element.
pub fn exp(graph: &mut Graph, x: ValueId) -> ValueId {
    let ty = graph.type_of(x).clone();
    graph.node("exp", &[x], &[], vec![ty], Attributes::new())
}
