//! `sgd`: gradient `[n]` -> param and its momentum buffer `[n]`, updated by a step of SGD. Without
//! momentum there is no buffer. `nesterov` is 1 or 0; `factor` multiplies the gradient.
//!
//! Versions 2 and 3 are to version 1 as those of `adamw`; `step` counts from 1.

use super::adamw::like_the_gradient;
use super::definition::{OpDefinition, updated};
use crate::graph::ValueType;

pub(super) static SGD: OpDefinition = OpDefinition {
    inputs: &["gradient"],
    outputs: &[updated("param"), updated("buffer").optional()],
    scalars: &[
        "learning_rate",
        "momentum",
        "nesterov",
        "weight_decay",
        "factor",
    ],
    ..OpDefinition::new("sgd", |call| {
        let gradient = call.float(0)?;
        let param = ValueType {
            dtype: call.stated_float(0)?,
            ..gradient.clone()
        };
        Ok(vec![param, gradient])
    })
};

pub(super) static SGD_2: OpDefinition = OpDefinition {
    version: 2,
    infer: like_the_gradient,
    ..SGD
};

pub(super) static SGD_3: OpDefinition = OpDefinition {
    version: 3,
    scalars: &[
        "learning_rate",
        "momentum",
        "nesterov",
        "weight_decay",
        "factor",
        "step",
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
    ..SGD
};
