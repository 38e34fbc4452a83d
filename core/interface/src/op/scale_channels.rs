//! `scale_channels`: x `[T, N]`; weight of `N` elements -> each channel times its own. It is also
//! applied to gradients.
//!
//! `scale_channels_weight_backward`: dy, x `[T, N]` -> dweight of `N` elements.

use super::definition::{OpDefinition, accumulated, dense, fixed, gradient_dtype, written};
use crate::graph::{Attributes, Graph, ParamId, ValueId};

pub(super) static SCALE_CHANNELS: OpDefinition = OpDefinition {
    inputs: &["x"],
    params: &[dense("weight")],
    outputs: &[written("y")],
    ..OpDefinition::new("scale_channels", |call| {
        let width = call.width(0)?;
        call.expect_elements(0, width)?;
        Ok(vec![call.float(0)?])
    })
};

pub(super) static SCALE_CHANNELS_WEIGHT_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "x"],
    outputs: &[accumulated("dweight")],
    ..OpDefinition::new("scale_channels_weight_backward", |call| {
        let width = call.width(0)?;
        let dy = call.float(0)?;
        call.expect(1, &dy)?;
        let extents = call.stated_elements(0, width)?;
        Ok(vec![fixed(&extents, gradient_dtype(call, 0, dy.dtype))])
    })
};

/// Each channel of `x`, `[T, N]`, times its element of `weight`. The weight has `N` elements in any
/// shape.
pub fn scale_channels(graph: &mut Graph, x: ValueId, weight: ParamId) -> ValueId {
    let ty = graph.type_of(x).clone();
    let attributes = Attributes::new();
    graph.node("scale_channels", &[x], &[weight], vec![ty], attributes)
}
