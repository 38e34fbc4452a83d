//! `row_max`, a primitive: x `[T, N]` -> `[T]`, the largest number of each row.
//!
//! `is_argmax`: x `[T, N]`, index `[T]` -> `[T]` i32: 1 where the first largest number of the
//! row is at that index, else 0.

use super::definition::{OpDefinition, per_token, written};
use crate::DType;

pub(super) static ROW_MAX: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    ..OpDefinition::primitive("row_max", |call| {
        call.width(0)?;
        Ok(vec![per_token(call.inputs[0].dtype)])
    })
};

pub(super) static IS_ARGMAX: OpDefinition = OpDefinition {
    inputs: &["x", "index"],
    outputs: &[written("y")],
    ..OpDefinition::primitive("is_argmax", |call| {
        call.width(0)?;
        call.expect_integers(&[1])?;
        Ok(vec![per_token(DType::I32)])
    })
};
