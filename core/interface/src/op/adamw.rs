//! `adamw`: gradient `[n]` -> param, m, v `[n]`, updated by a step of AdamW. `step` counts from 1;
//! `factor` multiplies the gradient.

use super::definition::{OpDefinition, updated};
use crate::graph::ValueType;

pub(super) static ADAMW: OpDefinition = OpDefinition {
    inputs: &["gradient"],
    outputs: &[updated("param"), updated("m"), updated("v")],
    scalars: &[
        "learning_rate",
        "beta1",
        "beta2",
        "eps",
        "weight_decay",
        "step",
        "factor",
    ],
    ..OpDefinition::new("adamw", |call| {
        let gradient = call.float(0)?;
        let param = ValueType {
            dtype: call.stated_float(0)?,
            ..gradient.clone()
        };
        Ok(vec![param, gradient.clone(), gradient])
    })
};
