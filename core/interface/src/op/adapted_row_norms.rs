//! `adapted_row_norms`: weight `[N, M]` in any format, a `[R, M]`, b `[N, R]` -> the norms of the
//! rows of `weight + alpha b a`, `[N]` in the reduce dtype. A constant for the gradient.

use super::definition::{
    AttributeKind, OpDefinition, OpFlops, dense, fixed, in_any_format, needed, written,
};
use super::linear::params_read;
use crate::DType;
use crate::graph::{Attributes, Dim, Graph, ParamId, ValueId, ValueType};

pub(super) static ADAPTED_ROW_NORMS: OpDefinition = OpDefinition {
    params: &[in_any_format("weight"), dense("a"), dense("b")],
    outputs: &[written("norms")],
    attributes: &[needed("alpha", AttributeKind::Number)],
    // The update's elements, and a square and a sum of each.
    flops: |call| OpFlops {
        per_launch: (2 * call.params[1].shape[0] + 2)
            * call.params[0].shape.iter().product::<u64>(),
        ..OpFlops::NONE
    },
    traffic: params_read,
    kept_by_selective_recompute: true,
    ..OpDefinition::new("adapted_row_norms", |call| {
        let ([n, m], [rank, _]) = (call.matrix(0)?, call.matrix(1)?);
        call.expect_param(1, &[rank, m])?;
        call.expect_param(2, &[n, rank])?;
        Ok(vec![fixed(&[n], call.stated_float(0)?)])
    })
};

/// `n_i = || W_i + alpha sum_k B_ik A_k ||`, `[N]`, in the reduce dtype: the Euclidean norm of each
/// row. `W + alpha B A` is never held whole. The norms are constants: no gradient passes through
/// them, as in DoRA (Liu et al. 2024, section 4.3).
///
/// # Shapes
/// `weight` `[N, M]` in any format, `a` `[R, M]`, `b` `[N, R]`.
pub fn adapted_row_norms(
    graph: &mut Graph,
    weight: ParamId,
    a: ParamId,
    b: ParamId,
    alpha: f64,
) -> ValueId {
    let rows = graph.params[weight].shape[0];
    let ty = ValueType {
        shape: vec![Dim::Fixed(rows)],
        dtype: DType::REDUCE,
    };
    let attributes = Attributes::new().with("alpha", alpha);
    let params = [weight, a, b];
    graph.node("adapted_row_norms", &[], &params, vec![ty], attributes)
}
