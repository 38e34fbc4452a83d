//! `pick`, a primitive: x `[T, N]`, index `[T]` -> `[T]`, the number of each row at its index;
//! 0 where the index is -100.
//!
//! `one_hot`: index `[T]` -> y `[T, N]`: 1 at the index of each row, else 0; 0 everywhere where
//! it is -100. An index that is neither -100 nor in `0..N` is an error of the launch.

use super::definition::{OpDefinition, per_token, rows, written};
use crate::graph::Dim;

pub(super) static PICK: OpDefinition = OpDefinition {
    inputs: &["x", "index"],
    outputs: &[written("y")],
    ..OpDefinition::primitive("pick", |call| {
        call.width(0)?;
        call.expect_integers(&[1])?;
        Ok(vec![per_token(call.inputs[0].dtype)])
    })
};

pub(super) static ONE_HOT: OpDefinition = OpDefinition {
    inputs: &["index"],
    outputs: &[written("y")],
    ..OpDefinition::primitive("one_hot", |call| {
        call.expect_integers(&[0])?;
        let dtype = call.stated_float(0)?;
        let width = match call.outputs[0].shape {
            [Dim::Tokens, Dim::Fixed(width)] => *width,
            _ => 1,
        };
        Ok(vec![rows(width, dtype)])
    })
};
