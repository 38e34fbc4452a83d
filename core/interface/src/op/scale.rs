//! `scale`: a -> `alpha * a`. It may write its output over `a`.

use super::definition::{AttributeKind, OpDefinition, needed, written};
use crate::graph::{Attributes, Graph, ValueId};

pub(super) static SCALE: OpDefinition = OpDefinition {
    inputs: &["a"],
    outputs: &[written("y")],
    attributes: &[needed("alpha", AttributeKind::Number)],
    ..OpDefinition::new("scale", |call| Ok(vec![call.float(0)?]))
};

/// `alpha * a`.
pub fn scale(graph: &mut Graph, a: ValueId, alpha: f64) -> ValueId {
    let ty = graph.type_of(a).clone();
    let attributes = Attributes::new().with("alpha", alpha);
    graph.node("scale", &[a], &[], vec![ty], attributes)
}
