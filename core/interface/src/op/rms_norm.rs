//! `rms_norm`: x `[T, D]`; weight `[G]` -> `round(x r) w` with `r = 1 / sqrt(mean(x^2) + eps)`,
//! each `G` of the `D` columns on their own. `round` is to the dtype of x.
//!
//! `rms_norm_backward`: dy, x; weight -> dx. `rms_norm_weight_backward`: dy, x -> dweight
//! `[G]`.
//!
//! Version 2 of `rms_norm_backward` also has an input `added` `[T, D]`, whose memory the output may
//! take: `round(added + round(dx))`. It has the bits of version 1 and `add`, of which the core
//! makes it.

use super::definition::{
    AttributeDefinition, AttributeKind, OpCall, OpDefinition, accumulated, dense, fixed,
    gradient_dtype, needed, written,
};
use crate::Result;
use crate::graph::{Attributes, Graph, ParamId, ValueId, ValueType};

const ATTRIBUTES: &[AttributeDefinition] = &[needed("eps", AttributeKind::Number)];

pub(super) static RMS_NORM: OpDefinition = OpDefinition {
    inputs: &["x"],
    params: &[dense("weight")],
    outputs: &[written("y")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("rms_norm", infer)
};

pub(super) static RMS_NORM_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "x"],
    params: &[dense("weight")],
    outputs: &[written("dx")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("rms_norm_backward", infer)
};

pub(super) static RMS_NORM_BACKWARD_2: OpDefinition = OpDefinition {
    inputs: &["dy", "x", "added"],
    params: RMS_NORM_BACKWARD.params,
    outputs: RMS_NORM_BACKWARD.outputs,
    attributes: ATTRIBUTES,
    in_place: Some(2),
    ..OpDefinition::fused("rms_norm_backward", 2, infer)
};

pub(super) static RMS_NORM_WEIGHT_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "x"],
    outputs: &[accumulated("dweight")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("rms_norm_weight_backward", infer_weight_backward)
};

/// The gradient of a weight of `G` elements.
pub(super) fn infer_weight_backward(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let dy = call.float(0)?;
    call.expect(1, &dy)?;
    let stated = call.stated_extents(0)?;
    check_group(call, "output `dweight`", &stated)?;
    Ok(vec![fixed(&stated, gradient_dtype(call, 0, dy.dtype))])
}

/// All inputs are alike, and the output is like them.
pub(super) fn infer(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let x = call.float(0)?;
    let all: Vec<usize> = (1..call.inputs.len()).collect();
    call.expect_all(&all, &x)?;
    check_group(call, "param `weight`", call.params[0].shape)?;
    Ok(vec![x])
}

/// Checks that an operand is `[G]` and that `G` divides the columns of input 0.
fn check_group(call: &OpCall<'_>, what: &str, found: &[u64]) -> Result<()> {
    let width = call.width(0)?;
    match *found {
        [group] if group > 0 && width.is_multiple_of(group) => Ok(()),
        _ => Err(call.invalid(format!(
            "{what} is {found:?}, expected a divisor of the {width} columns"
        ))),
    }
}

/// `x / rms(x) * weight`, `[T, D]`. A weight of `K < D` elements normalizes each group of `K`
/// columns, a head, separately.
pub fn rms_norm(graph: &mut Graph, x: ValueId, weight: ParamId, eps: f64) -> ValueId {
    let ty = graph.type_of(x).clone();
    let attributes = Attributes::new().with("eps", eps);
    graph.node("rms_norm", &[x], &[weight], vec![ty], attributes)
}
