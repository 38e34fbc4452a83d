//! `log`, a primitive: x -> the natural logarithm, element by element.

use super::definition::{OpDefinition, written};
use crate::graph::{Attributes, Graph, ValueId};

pub(super) static LOG: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    ..OpDefinition::primitive("log", |call| Ok(vec![call.float(0)?]))
};

/// `ln x`, element by element.
pub fn log(graph: &mut Graph, x: ValueId) -> ValueId {
    let ty = graph.type_of(x).clone();
    graph.node("log", &[x], &[], vec![ty], Attributes::new())
}
