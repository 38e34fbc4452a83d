//! `rsqrt`, a primitive: x -> `1 / sqrt(alpha x + beta)`, element by element.

use super::definition::{AttributeKind, OpDefinition, optional, written};
use crate::graph::{Attributes, Graph, ValueId};

pub(super) static RSQRT: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    attributes: &[
        optional("alpha", AttributeKind::Number),
        optional("beta", AttributeKind::Number),
    ],
    ..OpDefinition::primitive("rsqrt", |call| Ok(vec![call.float(0)?]))
};

/// `1 / sqrt(alpha x + beta)`, element by element.
pub fn rsqrt(graph: &mut Graph, x: ValueId, alpha: f64, beta: f64) -> ValueId {
    let ty = graph.type_of(x).clone();
    let attributes = Attributes::new().with("alpha", alpha).with("beta", beta);
    graph.node("rsqrt", &[x], &[], vec![ty], attributes)
}
