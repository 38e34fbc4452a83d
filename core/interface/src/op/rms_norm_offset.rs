//! `rms_norm_offset`: x `[T, D]`; weight `[G]` -> `x r (offset + w)` with `r = 1 / sqrt(mean(x^2) +
//! eps)`, each `G` of the `D` columns on their own. Unlike in `rms_norm`, `x r` is not rounded
//! before it is multiplied. With an offset of 1, as in Gemma, weights are stored around 0.
//!
//! `rms_norm_offset_backward`: dy, x; weight -> dx. `rms_norm_offset_weight_backward`: dy, x ->
//! dweight `[G]`.

use super::definition::{
    AttributeDefinition, AttributeKind, OpDefinition, accumulated, dense, needed, written,
};
use super::rms_norm::{infer, infer_weight_backward};
use crate::graph::{Attributes, Graph, ParamId, ValueId};

const ATTRIBUTES: &[AttributeDefinition] = &[
    needed("eps", AttributeKind::Number),
    needed("offset", AttributeKind::Number),
];

pub(super) static RMS_NORM_OFFSET: OpDefinition = OpDefinition {
    inputs: &["x"],
    params: &[dense("weight")],
    outputs: &[written("y")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("rms_norm_offset", infer)
};

pub(super) static RMS_NORM_OFFSET_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "x"],
    params: &[dense("weight")],
    outputs: &[written("dx")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("rms_norm_offset_backward", infer)
};

pub(super) static RMS_NORM_OFFSET_WEIGHT_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "x"],
    outputs: &[accumulated("dweight")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("rms_norm_offset_weight_backward", infer_weight_backward)
};

/// `x / rms(x) * (offset + weight)`, `[T, D]`. A weight of `K < D` elements normalizes each group
/// of `K` columns, a head, separately.
pub fn rms_norm_offset(
    graph: &mut Graph,
    x: ValueId,
    weight: ParamId,
    eps: f64,
    offset: f64,
) -> ValueId {
    let ty = graph.type_of(x).clone();
    let attributes = Attributes::new().with("eps", eps).with("offset", offset);
    graph.node("rms_norm_offset", &[x], &[weight], vec![ty], attributes)
}
