//! `adamw`: gradient `[n]` -> param, m, v `[n]`, updated by a step of AdamW. `step` counts from 1;
//! `factor` multiplies the gradient.
//!
//! In version 1 the moments have the gradient's dtype. In version 2 gradient and moments have any
//! float dtype each: a number is widened, updated in the arithmetic of the gradient's dtype (f32,
//! or f64 for f64) and rounded once. Version 3 is version 2 with a param in bf16 that is rounded
//! [stochastically](crate::stochastic).

use super::definition::{OpCall, OpDefinition, updated};
use crate::Result;
use crate::graph::ValueType;

/// The scalars of a step, in the op's order.
pub const ADAMW_SCALARS: [&str; 7] = [
    "learning_rate",
    "beta1",
    "beta2",
    "eps",
    "weight_decay",
    "step",
    "factor",
];

pub(super) static ADAMW: OpDefinition = OpDefinition {
    inputs: &["gradient"],
    outputs: &[updated("param"), updated("m"), updated("v")],
    scalars: &ADAMW_SCALARS,
    ..OpDefinition::new("adamw", |call| {
        let gradient = call.float(0)?;
        let param = ValueType {
            dtype: call.stated_float(0)?,
            ..gradient.clone()
        };
        Ok(vec![param, gradient.clone(), gradient])
    })
};

pub(super) static ADAMW_2: OpDefinition = OpDefinition {
    version: 2,
    infer: like_the_gradient,
    ..ADAMW
};

pub(super) static ADAMW_3: OpDefinition = OpDefinition {
    version: 3,
    scalars: &[
        "learning_rate",
        "beta1",
        "beta2",
        "eps",
        "weight_decay",
        "step",
        "factor",
        "seed_low",
        "seed_high",
        "name_low",
        "name_high",
        "first",
    ],
    infer: |call| {
        call.expect_narrow_param()?;
        like_the_gradient(call)
    },
    ..ADAMW
};

/// The outputs are like the gradient, each in the float dtype that it is stated in.
pub(super) fn like_the_gradient(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let gradient = call.float(0)?;
    let outputs = (0..call.outputs.len()).map(|index| {
        Ok(ValueType {
            dtype: call.stated_float(index)?,
            ..gradient.clone()
        })
    });
    outputs.collect()
}
