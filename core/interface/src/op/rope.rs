//! `rope`: x `[T, H K]`, positions `[T]` -> each head rotated by its token's position, halves as in
//! Llama. `rope_backward`: dy, positions -> dx, the transposed rotation.
//!
//! Version 2 of both rotates two values by the same angles, q `[T, H K]` and k `[T, J K]`, and has
//! the bits of two calls of version 1, of which the core makes it.

use serde_json::json;

use super::definition::{
    AttributeDefinition, AttributeKind, OpCall, OpDefinition, needed, rows, written,
};
use crate::Result;
use crate::graph::{Attributes, Graph, ValueId, ValueType};

const ATTRIBUTES: &[AttributeDefinition] = &[
    needed("head_dim", AttributeKind::Count),
    needed("inv_freq", AttributeKind::Numbers),
    needed("scaling", AttributeKind::Number),
];

pub(super) static ROPE: OpDefinition = OpDefinition {
    inputs: &["x", "positions"],
    outputs: &[written("y")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("rope", infer)
};

pub(super) static ROPE_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "positions"],
    outputs: &[written("dx")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("rope_backward", infer)
};

pub(super) static ROPE_2: OpDefinition = OpDefinition {
    inputs: &["q", "k", "positions"],
    outputs: &[written("q_rotated"), written("k_rotated")],
    attributes: ATTRIBUTES,
    ..OpDefinition::fused("rope", 2, infer)
};

pub(super) static ROPE_BACKWARD_2: OpDefinition = OpDefinition {
    inputs: &["dq_rotated", "dk_rotated", "positions"],
    outputs: &[written("dq"), written("dk")],
    attributes: ATTRIBUTES,
    ..OpDefinition::fused("rope_backward", 2, infer)
};

/// All inputs but the last, the positions, are rotated.
fn infer(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let (positions, head) = (call.inputs.len() - 1, call.count("head_dim")?);
    let mut rotated = Vec::with_capacity(positions);
    for index in 0..positions {
        let width = call.width(index)?;
        if !width.is_multiple_of(head) {
            return Err(call.invalid(format!(
                "heads of {head} columns do not divide {width} columns"
            )));
        }
        let ty = rows(width, call.inputs[0].dtype);
        call.expect(index, &ty)?;
        rotated.push(ty);
    }
    call.expect_integers(&[positions])?;
    let frequencies = call.attributes.numbers("inv_freq")?.len() as u64;
    if 2 * frequencies > head {
        return Err(call.invalid(format!(
            "attribute `inv_freq` has {frequencies} numbers, expected at most {}",
            head / 2
        )));
    }
    Ok(rotated)
}

/// Rotary embedding of `[T, H K]`; `inv_freq` are the `K / 2` angular frequencies in radians per
/// position.
pub fn rope(
    graph: &mut Graph,
    x: ValueId,
    positions: ValueId,
    head_dim: u64,
    inv_freq: &[f32],
    scaling: f64,
) -> ValueId {
    let ty = graph.type_of(x).clone();
    let attributes = Attributes::new()
        .with("head_dim", head_dim)
        .with("inv_freq", json!(inv_freq))
        .with("scaling", scaling);
    graph.node("rope", &[x, positions], &[], vec![ty], attributes)
}
