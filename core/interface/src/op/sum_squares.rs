//! `sum_squares`: x `[n]` -> `[1]` f64, by a tree that `n` fixes.

use super::definition::{OpDefinition, fixed, written};
use crate::DType;

pub(super) static SUM_SQUARES: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("sum")],
    ..OpDefinition::new("sum_squares", |call| {
        call.float(0)?;
        Ok(vec![fixed(&[1], DType::F64)])
    })
};
