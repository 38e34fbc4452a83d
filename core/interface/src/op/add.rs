//! `add`: a, b -> `a + alpha * b`. It may write its output over `a`.

use super::definition::{AttributeKind, OpDefinition, optional, written};
use crate::graph::{Attributes, Graph, ValueId};

pub(super) static ADD: OpDefinition = OpDefinition {
    inputs: &["a", "b"],
    outputs: &[written("y")],
    attributes: &[optional("alpha", AttributeKind::Number)],
    ..OpDefinition::new("add", |call| {
        let a = call.float(0)?;
        call.expect(1, &a)?;
        Ok(vec![a])
    })
};

/// `a + alpha * b`.
pub fn add(graph: &mut Graph, a: ValueId, b: ValueId, alpha: f64) -> ValueId {
    let ty = graph.type_of(a).clone();
    let attributes = Attributes::new().with("alpha", alpha);
    graph.node("add", &[a, b], &[], vec![ty], attributes)
}
