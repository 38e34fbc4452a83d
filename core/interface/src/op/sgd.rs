//! `sgd`: gradient `[n]` -> param and its momentum buffer `[n]`, updated by a step of SGD. Without
//! momentum there is no buffer. `nesterov` is 1 or 0; `factor` multiplies the gradient.

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
