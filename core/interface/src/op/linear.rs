//! `linear`: x `[T, M]`; weight `[N, M]` in any format, optional bias `[N]` -> `x W^T + b`,
//! `[T, N]`.
//!
//! `linear_input_backward`: dy `[T, N]`; weight -> dx `[T, M]`. `linear_weight_backward`: dy
//! `[T, N]`, x `[T, M]` -> dweight `[N, M]`. `bias_backward`: dy `[T, N]` -> dbias, `N`
//! elements.
//!
//! Version 2 of the three also has a number `alpha`, 1 where it is absent, and of the first two an
//! optional input `added`, whose memory the output may take. With `round`, to the output's dtype:
//! `y = round(added + alpha round(x W^T + b))`, without `added` `round(alpha round(..))`; `dx =
//! round(added + round(alpha dy W))`; `dweight += alpha dy^T x`. In the gradients alpha is a power
//! of two, which may stand at any factor or sum and changes no bit there. So each has the bits of
//! version 1 with `scale` and `add`, of which the core makes it.
//!
//! Version 3 of `linear` adds its version 2 to a further input `residual`, rounded in between: `y =
//! round(residual + round(added + alpha round(x W^T + b)))`. Version 3 of `linear_input_backward`
//! also reads x and adds the weight's gradient, as version 2 of `linear_weight_backward` does, with
//! the same alpha: dy, x, optional `added`; weight -> dx, dweight.
//!
//! Version 4 of the two is an adapted product: the weight's, and a low-rank one, of rank R, on top
//! of it. `linear`: x, h `[T, R]`, optional `residual`; weight, `up` `[N, R]`, optional bias ->
//! `y = round(round(x W^T + b) + alpha round(h up^T))`, added to the residual as in version 3.
//! `linear_input_backward`: dy, dh `[T, R]`, x `[T, M]`, optional `added`; weight, `down` `[R, M]`
//! -> `dx = round(round(added + round(alpha dh down)) + round(dy W))` and `ddown += alpha dh^T x`.
//! Each has the bits of two calls: version 1 for the weight and then 2 or 3 for `up`; version 3 for
//! `down` and then 2 for the weight. But what the first writes is not read again from memory.

use super::definition::{
    AttributeDefinition, AttributeKind, OpCall, OpDefinition, OpFlops, OpTraffic, accumulated,
    dense, fixed, gradient_dtype, in_any_format, operand_traffic, optional, rows, written,
};
use crate::Result;
use crate::graph::{Attributes, Dim, Graph, ParamId, ValueId, ValueType};
use crate::role::WeightLayout;

/// The attributes of version 2.
const ALPHA: &[AttributeDefinition] = &[optional("alpha", AttributeKind::Number)];

pub(super) static LINEAR: OpDefinition = OpDefinition {
    inputs: &["x"],
    params: &[in_any_format("weight"), dense("bias").optional()],
    outputs: &[written("y")],
    flops,
    traffic,
    kept_by_selective_recompute: true,
    ..OpDefinition::new("linear", output)
};

pub(super) static LINEAR_2: OpDefinition = OpDefinition {
    inputs: LINEAR.inputs,
    optional_inputs: &["added"],
    params: LINEAR.params,
    outputs: LINEAR.outputs,
    attributes: ALPHA,
    flops,
    traffic,
    kept_by_selective_recompute: true,
    in_place: Some(1),
    ..OpDefinition::fused("linear", 2, output)
};

pub(super) static LINEAR_3: OpDefinition = OpDefinition {
    inputs: &["x", "added", "residual"],
    params: LINEAR.params,
    outputs: LINEAR.outputs,
    attributes: ALPHA,
    flops,
    traffic,
    kept_by_selective_recompute: true,
    in_place: Some(1),
    ..OpDefinition::fused("linear", 3, output)
};

pub(super) static LINEAR_INPUT_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy"],
    params: &[in_any_format("weight")],
    outputs: &[written("dx")],
    flops,
    traffic,
    ..OpDefinition::new("linear_input_backward", input_gradient)
};

pub(super) static LINEAR_INPUT_BACKWARD_2: OpDefinition = OpDefinition {
    inputs: LINEAR_INPUT_BACKWARD.inputs,
    optional_inputs: &["added"],
    params: LINEAR_INPUT_BACKWARD.params,
    outputs: LINEAR_INPUT_BACKWARD.outputs,
    attributes: ALPHA,
    flops,
    traffic,
    in_place: Some(1),
    ..OpDefinition::fused("linear_input_backward", 2, |call| {
        power_of_two(call)?;
        input_gradient(call)
    })
};

pub(super) static LINEAR_INPUT_BACKWARD_3: OpDefinition = OpDefinition {
    inputs: &["dy", "x"],
    optional_inputs: &["added"],
    params: &[dense("weight")],
    outputs: &[written("dx"), accumulated("dweight")],
    attributes: ALPHA,
    flops: |call| OpFlops {
        per_token: flops(call).per_token + weight_gradient_flops(call).per_token,
        ..OpFlops::NONE
    },
    traffic: |call| {
        // Each of the two products reads the gradient of the output.
        let dy = &call.inputs[0];
        let mut both = traffic(call);
        both.per_token += dy.fixed_elements() * dy.dtype.bytes();
        both
    },
    in_place: Some(2),
    ..OpDefinition::fused("linear_input_backward", 3, |call| {
        power_of_two(call)?;
        let [n, m] = call.matrix(0)?;
        let dy = call.inputs[0].dtype;
        call.expect(0, &rows(n, dy))?;
        call.expect(1, &rows(m, dy))?;
        call.expect_optional(2, &rows(m, dy))?;
        let dweight = fixed(&[n, m], gradient_dtype(call, 1, dy));
        Ok(vec![rows(m, dy), dweight])
    })
};

pub(super) static LINEAR_4: OpDefinition = OpDefinition {
    inputs: &["x", "h"],
    optional_inputs: &["residual"],
    params: &[
        in_any_format("weight"),
        dense("up"),
        dense("bias").optional(),
    ],
    outputs: LINEAR.outputs,
    attributes: ALPHA,
    flops: flops_of_both,
    traffic,
    kept_by_selective_recompute: true,
    ..OpDefinition::fused("linear", 4, |call| {
        let ([n, m], [_, r]) = (call.matrix(0)?, call.matrix(1)?);
        let x = call.inputs[0].dtype;
        call.expect(0, &rows(m, x))?;
        call.expect(1, &rows(r, x))?;
        call.expect_optional(2, &rows(n, x))?;
        call.expect_param(1, &[n, r])?;
        call.expect_param(2, &[n])?;
        Ok(vec![rows(n, x)])
    })
};

pub(super) static LINEAR_INPUT_BACKWARD_4: OpDefinition = OpDefinition {
    inputs: &["dy", "dh", "x"],
    optional_inputs: &["added"],
    params: &[in_any_format("weight"), dense("down")],
    outputs: &[written("dx"), accumulated("ddown")],
    attributes: ALPHA,
    flops: |call| {
        let narrow = call.inputs[1].fixed_elements() * call.inputs[2].fixed_elements();
        OpFlops {
            per_token: flops_of_both(call).per_token + 2 * narrow,
            ..OpFlops::NONE
        }
    },
    traffic: |call| {
        // The gradient of the narrow value is read by each of its two products.
        let dh = &call.inputs[1];
        let mut both = traffic(call);
        both.per_token += dh.fixed_elements() * dh.dtype.bytes();
        both
    },
    in_place: Some(3),
    ..OpDefinition::fused("linear_input_backward", 4, |call| {
        power_of_two(call)?;
        let ([n, m], [r, _]) = (call.matrix(0)?, call.matrix(1)?);
        let dy = call.inputs[0].dtype;
        call.expect(0, &rows(n, dy))?;
        call.expect(1, &rows(r, dy))?;
        call.expect(2, &rows(m, dy))?;
        call.expect_optional(3, &rows(m, dy))?;
        call.expect_param(1, &[r, m])?;
        let ddown = fixed(&[r, m], gradient_dtype(call, 1, dy));
        Ok(vec![rows(m, dy), ddown])
    })
};

pub(super) static LINEAR_WEIGHT_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "x"],
    outputs: &[accumulated("dweight")],
    flops: weight_gradient_flops,
    ..OpDefinition::new("linear_weight_backward", weight_gradient)
};

pub(super) static LINEAR_WEIGHT_BACKWARD_2: OpDefinition = OpDefinition {
    inputs: LINEAR_WEIGHT_BACKWARD.inputs,
    outputs: LINEAR_WEIGHT_BACKWARD.outputs,
    attributes: ALPHA,
    flops: weight_gradient_flops,
    ..OpDefinition::fused("linear_weight_backward", 2, |call| {
        power_of_two(call)?;
        weight_gradient(call)
    })
};

pub(super) static BIAS_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy"],
    outputs: &[accumulated("dbias")],
    ..OpDefinition::new("bias_backward", |call| {
        let width = call.width(0)?;
        let extents = call.stated_elements(0, width)?;
        Ok(vec![fixed(
            &extents,
            gradient_dtype(call, 0, call.inputs[0].dtype),
        )])
    })
};

fn output(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let [n, m] = call.matrix(0)?;
    let x = call.inputs[0].dtype;
    call.width(0)?;
    call.expect(0, &rows(m, x))?;
    call.expect_optional(1, &rows(n, x))?;
    call.expect_optional(2, &rows(n, x))?;
    call.expect_param(1, &[n])?;
    Ok(vec![rows(n, x)])
}

fn input_gradient(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let [n, m] = call.matrix(0)?;
    let dy = call.inputs[0].dtype;
    call.width(0)?;
    call.expect(0, &rows(n, dy))?;
    call.expect_optional(1, &rows(m, dy))?;
    Ok(vec![rows(m, dy)])
}

fn weight_gradient(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let [n, m] = [call.width(0)?, call.width(1)?];
    let dy = call.inputs[0].dtype;
    call.expect(1, &rows(m, dy))?;
    Ok(vec![fixed(&[n, m], gradient_dtype(call, 0, dy))])
}

/// Checks that `alpha`, if it is there, may be that of a gradient.
fn power_of_two(call: &OpCall<'_>) -> Result<()> {
    match call.attributes.optional_number("alpha") {
        Some(alpha) if !is_power_of_two(alpha) => Err(call.invalid(format!(
            "attribute `alpha` is {alpha}, expected a power of two from 2^-32 to 2^32"
        ))),
        _ => Ok(()),
    }
}

/// Whether version 2 of the gradients of `linear` may have this `alpha`: a power of two, of either
/// sign and of 2^-32 to 2^32. A product with it is exact, but for numbers at the ends of f32.
pub fn is_power_of_two(alpha: f64) -> bool {
    let fraction = alpha.to_bits() << 12;
    fraction == 0 && (2f64.powi(-32)..=2f64.powi(32)).contains(&alpha.abs())
}

fn weight_gradient_flops(call: &OpCall<'_>) -> OpFlops {
    OpFlops {
        per_token: 2 * call.inputs[0].fixed_elements() * call.inputs[1].fixed_elements(),
        ..OpFlops::NONE
    }
}

/// Of products of rows with the first two params.
fn flops_of_both(call: &OpCall<'_>) -> OpFlops {
    let products = call.params[..2].iter();
    let elements: u64 = products
        .map(|param| param.shape.iter().product::<u64>())
        .sum();
    OpFlops {
        per_token: 2 * elements,
        ..OpFlops::NONE
    }
}

/// Of a product of rows with the weight.
fn flops(call: &OpCall<'_>) -> OpFlops {
    OpFlops {
        per_token: 2 * call.params[0].shape.iter().product::<u64>(),
        ..OpFlops::NONE
    }
}

/// An op that reads its params, and decodes them where they are packed.
pub(super) fn params_read(call: &OpCall<'_>) -> OpTraffic {
    let mut traffic = operand_traffic(call);
    for param in &call.params {
        match param.layout {
            Some(WeightLayout::Dense(dtype)) => {
                traffic.per_launch += param.shape.iter().product::<u64>() * dtype.bytes();
            }
            Some(WeightLayout::Packed(format)) => traffic.decoded_per_launch += format.bytes(),
            None => {}
        }
    }
    traffic
}

/// A product reads its params too, decodes them where they are packed, and copies them to a layout
/// of its own, which is written once and read once.
fn traffic(call: &OpCall<'_>) -> OpTraffic {
    let mut traffic = operand_traffic(call);
    for param in &call.params {
        let elements: u64 = param.shape.iter().product();
        let laid_out = 2 * elements * call.inputs[0].dtype.bytes();
        match param.layout {
            Some(WeightLayout::Dense(dtype)) => {
                traffic.per_launch += elements * dtype.bytes() + laid_out;
            }
            Some(WeightLayout::Packed(format)) => {
                traffic.decoded_per_launch += format.bytes() + laid_out;
            }
            None => traffic.per_launch += laid_out,
        }
    }
    traffic
}

/// `x W^T (+ bias)`, `[T, N]`.
pub fn linear(graph: &mut Graph, x: ValueId, weight: ParamId, bias: Option<ParamId>) -> ValueId {
    let width = graph.params[weight].shape[0];
    let ty = super::compute([Dim::Tokens, Dim::Fixed(width)]);
    let params: Vec<_> = std::iter::once(weight).chain(bias).collect();
    graph.node("linear", &[x], &params, vec![ty], Attributes::new())
}
