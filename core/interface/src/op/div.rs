//! `div`: a, b -> `a / b`.

use super::definition::{OpDefinition, written};
use crate::graph::{Attributes, Graph, ValueId};

pub(super) static DIV: OpDefinition = OpDefinition {
    inputs: &["a", "b"],
    outputs: &[written("y")],
    ..OpDefinition::new("div", |call| {
        let a = call.float(0)?;
        call.expect(1, &a)?;
        Ok(vec![a])
    })
};

/// `a / b`, element by element.
pub fn div(graph: &mut Graph, a: ValueId, b: ValueId) -> ValueId {
    let ty = graph.type_of(a).clone();
    graph.node("div", &[a, b], &[], vec![ty], Attributes::new())
}
