//! `base`, in an adapter's fragment only: x -> the site's own output. The core puts the site's
//! op in its place.

use super::definition::{OpDefinition, written};
use crate::graph::{Attributes, Dim, Graph, ValueId};

pub(super) static BASE: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    ..OpDefinition::new("base", |call| Ok(vec![call.outputs[0].to_value()]))
};

/// The site's own output for `x`; only inside an adapter's fragment.
pub fn base(graph: &mut Graph, x: ValueId, width: u64) -> ValueId {
    let ty = super::compute([Dim::Tokens, Dim::Fixed(width)]);
    graph.node("base", &[x], &[], vec![ty], Attributes::new())
}
