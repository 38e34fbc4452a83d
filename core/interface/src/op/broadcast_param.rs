//! `broadcast_param`, a primitive: weight of `N` elements -> y `[T, N L]`: each row is the weight,
//! `tile` (L) times, in the dtype of y.

use super::definition::{AttributeKind, OpCall, OpDefinition, dense, optional, rows, written};
use crate::Result;
use crate::graph::{Dim, ValueType};

pub(super) static BROADCAST_PARAM: OpDefinition = OpDefinition {
    params: &[dense("weight")],
    outputs: &[written("y")],
    attributes: &[optional("tile", AttributeKind::Count)],
    ..OpDefinition::primitive("broadcast_param", infer)
};

fn infer(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let tile = match call.attributes.optional_number("tile") {
        None => 1,
        Some(_) => call.count("tile")?,
    };
    let dtype = call.stated_float(0)?;
    let width = match call.outputs[0].shape {
        [Dim::Tokens, Dim::Fixed(width)] if width.is_multiple_of(tile) => *width,
        // Reported as another shape than the one that follows.
        _ => tile,
    };
    call.expect_elements(0, width / tile)?;
    Ok(vec![rows(width, dtype)])
}
