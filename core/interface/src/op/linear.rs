//! `linear`: x `[T, M]`; weight `[N, M]` in any format, optional bias `[N]` -> `x W^T + b`,
//! `[T, N]`.
//!
//! `linear_input_backward`: dy `[T, N]`; weight -> dx `[T, M]`. `linear_weight_backward`: dy
//! `[T, N]`, x `[T, M]` -> dweight `[N, M]`. `bias_backward`: dy `[T, N]` -> dbias, `N`
//! elements.

use super::definition::{
    OpCall, OpDefinition, OpFlops, OpTraffic, accumulated, dense, fixed, in_any_format,
    operand_traffic, reduced, rows, written,
};
use crate::graph::{Attributes, Dim, Graph, ParamId, ValueId};
use crate::role::WeightLayout;

pub(super) static LINEAR: OpDefinition = OpDefinition {
    inputs: &["x"],
    params: &[in_any_format("weight"), dense("bias").optional()],
    outputs: &[written("y")],
    flops,
    traffic,
    kept_by_selective_recompute: true,
    ..OpDefinition::new("linear", |call| {
        let [n, m] = call.matrix(0)?;
        let x = call.inputs[0].dtype;
        call.width(0)?;
        call.expect(0, &rows(m, x))?;
        call.expect_param(1, &[n])?;
        Ok(vec![rows(n, x)])
    })
};

pub(super) static LINEAR_INPUT_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy"],
    params: &[in_any_format("weight")],
    outputs: &[written("dx")],
    flops,
    traffic,
    ..OpDefinition::new("linear_input_backward", |call| {
        let [n, m] = call.matrix(0)?;
        let dy = call.inputs[0].dtype;
        call.width(0)?;
        call.expect(0, &rows(n, dy))?;
        Ok(vec![rows(m, dy)])
    })
};

pub(super) static LINEAR_WEIGHT_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "x"],
    outputs: &[accumulated("dweight")],
    flops: |call| OpFlops {
        per_token: 2 * call.inputs[0].fixed_elements() * call.inputs[1].fixed_elements(),
        ..OpFlops::NONE
    },
    ..OpDefinition::new("linear_weight_backward", |call| {
        let [n, m] = [call.width(0)?, call.width(1)?];
        let dy = call.inputs[0].dtype;
        call.expect(1, &rows(m, dy))?;
        Ok(vec![fixed(&[n, m], reduced(dy))])
    })
};

pub(super) static BIAS_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy"],
    outputs: &[accumulated("dbias")],
    ..OpDefinition::new("bias_backward", |call| {
        let width = call.width(0)?;
        let extents = call.stated_elements(0, width)?;
        Ok(vec![fixed(&extents, reduced(call.inputs[0].dtype))])
    })
};

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
