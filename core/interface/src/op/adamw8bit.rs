//! `adamw8bit`: gradient `[n]` -> param `[n]`, and its two moments as 8-bit codes `[n]` with the
//! absmax of each block `[ceil(n / 256)]`, updated by a step of AdamW. The first moment has codes
//! of the signed dynamic map, the second of the unsigned one
//! ([`dynamic_map`](crate::dynamic_map)). Blocks are counted from the first element. `step` counts
//! from 1; `factor` multiplies the gradient.

use super::definition::{OpDefinition, fixed, updated};
use crate::DType;
use crate::graph::{Dim, ValueType};

/// Elements of a block, which share an absmax.
pub const ADAMW8BIT_BLOCK: u64 = 256; // bitsandbytes' block-wise optimizers

pub(super) static ADAMW8BIT: OpDefinition = OpDefinition {
    inputs: &["gradient"],
    outputs: &[
        updated("param"),
        updated("m_codes"),
        updated("m_absmax"),
        updated("v_codes"),
        updated("v_absmax"),
    ],
    scalars: &[
        "learning_rate",
        "beta1",
        "beta2",
        "eps",
        "weight_decay",
        "step",
        "factor",
    ],
    ..OpDefinition::new("adamw8bit", |call| {
        let gradient = call.float(0)?;
        let [Dim::Fixed(n)] = gradient.shape[..] else {
            return Err(call.invalid("the gradient has not the shape [n]"));
        };
        let param = ValueType {
            dtype: call.stated_float(0)?,
            ..gradient.clone()
        };
        let codes = fixed(&[n], DType::U8);
        let absmax = fixed(&[n.div_ceil(ADAMW8BIT_BLOCK)], gradient.dtype);
        Ok(vec![param, codes.clone(), absmax.clone(), codes, absmax])
    })
};
