//! `adamw8bit`: gradient `[n]` -> param `[n]`, and its two moments as 8-bit codes `[n]` with the
//! absmax of each block `[ceil(n / 256)]`, updated by a step of AdamW. The first moment has codes
//! of the signed dynamic map, the second of the unsigned one
//! ([`dynamic_map`](crate::dynamic_map)). Blocks are counted from the first element. `step` counts
//! from 1; `factor` multiplies the gradient.
//!
//! In version 1 the absmax have the gradient's dtype. In version 2 gradient and absmax have any
//! float dtype each. Version 3 is version 2 with a param in bf16 that is rounded
//! [stochastically](crate::stochastic).

use super::adamw::{ADAMW, ADAMW_3};
use super::definition::{OpCall, OpDefinition, fixed, updated};
use crate::graph::{Dim, ValueType};
use crate::{DType, Result};

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
    scalars: ADAMW.scalars,
    ..OpDefinition::new("adamw8bit", |call| {
        let of_gradient = call.float(0)?.dtype;
        outputs(call, [of_gradient; 2])
    })
};

pub(super) static ADAMW8BIT_2: OpDefinition = OpDefinition {
    version: 2,
    infer: stated_outputs,
    ..ADAMW8BIT
};

pub(super) static ADAMW8BIT_3: OpDefinition = OpDefinition {
    version: 3,
    scalars: ADAMW_3.scalars,
    infer: |call| {
        call.expect_narrow_param()?;
        stated_outputs(call)
    },
    ..ADAMW8BIT
};

/// The outputs, with each absmax in the float dtype that it is stated in.
fn stated_outputs(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    outputs(call, [call.stated_float(2)?, call.stated_float(4)?])
}

/// The outputs, with absmax of these dtypes.
fn outputs(call: &OpCall<'_>, [first, second]: [DType; 2]) -> Result<Vec<ValueType>> {
    let gradient = call.float(0)?;
    let [Dim::Fixed(n)] = gradient.shape[..] else {
        return Err(call.invalid("the gradient has not the shape [n]"));
    };
    let dtype = call.stated_float(0)?;
    let param = ValueType { dtype, ..gradient };
    let codes = fixed(&[n], DType::U8);
    let absmax = |dtype| fixed(&[n.div_ceil(ADAMW8BIT_BLOCK)], dtype);
    Ok(vec![
        param,
        codes.clone(),
        absmax(first),
        codes,
        absmax(second),
    ])
}
