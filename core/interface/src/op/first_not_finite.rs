//! `first_not_finite`: x `[n]` -> `[1]` i64, the index of the first NaN or infinity, or -1.

use super::definition::{OpDefinition, fixed, written};
use crate::DType;

pub(super) static FIRST_NOT_FINITE: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("index")],
    ..OpDefinition::new("first_not_finite", |call| {
        call.float(0)?;
        Ok(vec![fixed(&[1], DType::I64)])
    })
};
