//! `expand`, a primitive: x `[T, M]` -> `[T, M R L]`: each column `repeat` (R) times, then the row
//! `tile` (L) times. A column may be written `[T]`.
//!
//! `contract` is its transpose: x `[T, M R L]` -> `[T, M]`, each column the sum of those that
//! `expand` makes of it. One column may be written `[T]`.

use super::definition::{
    AttributeDefinition, AttributeKind, OpCall, OpDefinition, optional, per_token, rows, written,
};
use crate::Result;
use crate::graph::{Dim, ValueType};

const ATTRIBUTES: &[AttributeDefinition] = &[
    optional("repeat", AttributeKind::Count),
    optional("tile", AttributeKind::Count),
];

pub(super) static EXPAND: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    attributes: ATTRIBUTES,
    ..OpDefinition::primitive("expand", infer)
};

pub(super) static CONTRACT: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    attributes: ATTRIBUTES,
    ..OpDefinition::primitive("contract", infer_contract)
};

/// How many columns `expand` makes of one.
fn copies(call: &OpCall<'_>) -> Result<u64> {
    let of = |name: &str| match call.attributes.optional_number(name) {
        None => Ok(1),
        Some(_) => call.count(name),
    };
    let copies = of("repeat")?.checked_mul(of("tile")?);
    copies.ok_or_else(|| call.invalid("attributes `repeat` and `tile` are too large"))
}

fn infer(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let columns = call.columns(0)?;
    let made = columns.checked_mul(copies(call)?);
    let made = made.ok_or_else(|| call.invalid("attributes `repeat` and `tile` are too large"))?;
    Ok(vec![rows(made, call.inputs[0].dtype)])
}

fn infer_contract(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let (width, copies, dtype) = (call.width(0)?, copies(call)?, call.inputs[0].dtype);
    if !width.is_multiple_of(copies) {
        return Err(call.invalid(format!(
            "input `x` has {width} columns, expected a multiple of {copies}"
        )));
    }
    // A single column, as stated.
    Ok(vec![match (width / copies, call.outputs[0].shape) {
        (1, [Dim::Tokens]) => per_token(dtype),
        (columns, _) => rows(columns, dtype),
    }])
}
