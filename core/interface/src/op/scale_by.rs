//! `scale_by`: x `[T, N]`, factors `[N]` in the reduce dtype -> each channel times its own. It is
//! also applied to gradients.
//!
//! `scale_by_backward`: dy, x `[T, N]` -> dfactors `[N]` in the reduce dtype.

use super::definition::{OpDefinition, fixed, reduced, written};
use crate::graph::{Attributes, Graph, ValueId};

pub(super) static SCALE_BY: OpDefinition = OpDefinition {
    inputs: &["x", "factors"],
    outputs: &[written("y")],
    ..OpDefinition::new("scale_by", |call| {
        let (width, x) = (call.width(0)?, call.float(0)?);
        call.expect(1, &fixed(&[width], reduced(x.dtype)))?;
        Ok(vec![x])
    })
};

pub(super) static SCALE_BY_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "x"],
    outputs: &[written("dfactors")],
    ..OpDefinition::new("scale_by_backward", |call| {
        let (width, dy) = (call.width(0)?, call.float(0)?);
        call.expect(1, &dy)?;
        Ok(vec![fixed(&[width], reduced(dy.dtype))])
    })
};

/// Each channel of `x`, `[T, N]`, times its element of `factors`, `[N]` in the reduce dtype. The
/// gradient arrives at both. Where the factors are a param, `scale_channels` does it in one op.
pub fn scale_by(graph: &mut Graph, x: ValueId, factors: ValueId) -> ValueId {
    let ty = graph.type_of(x).clone();
    let attributes = Attributes::new();
    graph.node("scale_by", &[x, factors], &[], vec![ty], attributes)
}
