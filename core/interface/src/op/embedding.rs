//! `embedding`: tokens `[T]`; weight `[V, D]` -> rows of the weight, `[T, D]`.
//!
//! `embedding_backward`: dy `[T, D]`, tokens `[T]` -> dweight, the gradient of the weight. Where
//! `transposed`, the weight is `[D, V]` and a token is a column.

use super::definition::{
    AttributeDefinition, AttributeKind, OpCall, OpDefinition, accumulated, dense, fixed,
    gradient_dtype, optional, rows, written,
};
use crate::Result;
use crate::graph::{Attributes, Dim, Graph, ParamId, ValueId, ValueType};

const ATTRIBUTES: &[AttributeDefinition] = &[optional("transposed", AttributeKind::Flag)];

pub(super) static EMBEDDING: OpDefinition = OpDefinition {
    inputs: &["tokens"],
    params: &[dense("weight")],
    outputs: &[written("y")],
    attributes: ATTRIBUTES,
    kept_by_selective_recompute: true,
    ..OpDefinition::new("embedding", |call| {
        call.expect_integers(&[0])?;
        let width = width(call, call.matrix(0)?);
        Ok(vec![rows(width, call.stated_float(0)?)])
    })
};

pub(super) static EMBEDDING_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "tokens"],
    outputs: &[accumulated("dweight")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("embedding_backward", infer_backward)
};

/// The width of a token of a weight.
fn width(call: &OpCall<'_>, weight: [u64; 2]) -> u64 {
    weight[usize::from(!call.attributes.flag("transposed"))]
}

fn infer_backward(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    call.expect_integers(&[1])?;
    let columns = call.width(0)?;
    let stated = call.stated_extents(0)?;
    match <[u64; 2]>::try_from(stated.as_slice()) {
        Ok(weight) if width(call, weight) == columns => {}
        _ => {
            return Err(call.invalid(format!(
                "output `dweight` is {stated:?}, expected a matrix with tokens of {columns} numbers"
            )));
        }
    }
    Ok(vec![fixed(
        &stated,
        gradient_dtype(call, 0, call.inputs[0].dtype),
    )])
}

/// The memory layout of an embedding's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingLayout {
    /// `[V, D]`: a token is a row, as in model checkpoints.
    ByRow,
    /// `[D, V]`: a token is a column, as in PEFT's `lora_embedding_A`.
    ByColumn,
}

/// Rows of a `[V, D]` weight by token, `[T, D]`; columns of a `[D, V]` weight where `transposed`.
pub fn embedding(
    graph: &mut Graph,
    tokens: ValueId,
    weight: ParamId,
    layout: EmbeddingLayout,
) -> ValueId {
    let shape = &graph.params[weight].shape;
    let transposed = layout == EmbeddingLayout::ByColumn;
    let width = if transposed { shape[0] } else { shape[1] };
    let ty = super::compute([Dim::Tokens, Dim::Fixed(width)]);
    let attributes = Attributes::new().with("transposed", transposed);
    graph.node("embedding", &[tokens], &[weight], vec![ty], attributes)
}
