//! `layer_norm`: x `[T, D]`; weight `[D]`, optional bias `[D]` -> `n w + b` with `n = (x - m) r`,
//! `m = mean(x)` and `r = 1 / sqrt(mean((x - m)^2) + eps)` of each row, rounded once.
//!
//! `layer_norm_backward`: dy, x; weight -> dx. `layer_norm_weight_backward`: dy, x -> dweight
//! `[D]`. The bias's gradient is `bias_backward`.
//!
//! Source: Ba, Kiros and Hinton, Layer Normalization, arXiv 1607.06450; `torch.nn.LayerNorm` over
//! the last dimension.

use super::definition::{
    AttributeDefinition, AttributeKind, OpCall, OpDefinition, accumulated, dense, fixed,
    gradient_dtype, needed, written,
};
use crate::Result;
use crate::graph::{Attributes, Graph, ParamId, ValueId, ValueType};

const ATTRIBUTES: &[AttributeDefinition] = &[needed("eps", AttributeKind::Number)];

pub(super) static LAYER_NORM: OpDefinition = OpDefinition {
    inputs: &["x"],
    params: &[dense("weight"), dense("bias").optional()],
    outputs: &[written("y")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("layer_norm", infer)
};

pub(super) static LAYER_NORM_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "x"],
    params: &[dense("weight")],
    outputs: &[written("dx")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("layer_norm_backward", infer)
};

pub(super) static LAYER_NORM_WEIGHT_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "x"],
    outputs: &[accumulated("dweight")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("layer_norm_weight_backward", infer_weight_backward)
};

/// The gradient of a weight with an element for each column.
fn infer_weight_backward(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let dy = call.float(0)?;
    call.expect(1, &dy)?;
    let extents = call.stated_elements(0, call.width(0)?)?;
    Ok(vec![fixed(&extents, gradient_dtype(call, 0, dy.dtype))])
}

/// All inputs are alike, the output is like them, and each param has an element for each column.
fn infer(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let x = call.float(0)?;
    let all: Vec<usize> = (1..call.inputs.len()).collect();
    call.expect_all(&all, &x)?;
    let width = call.width(0)?;
    call.expect_elements(0, width)?;
    if call.params.len() > 1 {
        call.expect_elements(1, width)?;
    }
    Ok(vec![x])
}

/// `(x - mean) / sqrt(variance + eps) * weight (+ bias)`, `[T, D]`.
pub fn layer_norm(
    graph: &mut Graph,
    x: ValueId,
    weight: ParamId,
    bias: Option<ParamId>,
    eps: f64,
) -> ValueId {
    let ty = graph.type_of(x).clone();
    let attributes = Attributes::new().with("eps", eps);
    let params: Vec<_> = std::iter::once(weight).chain(bias).collect();
    graph.node("layer_norm", &[x], &params, vec![ty], attributes)
}
