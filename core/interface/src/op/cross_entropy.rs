//! `cross_entropy`: logits `[T, V]`, labels `[T]` -> loss, lse `[T]`, correct `[T]` i32, all 0
//! where the label is -100.
//!
//! `cross_entropy_backward`: logits, labels, lse -> dlogits `[T, V]`. Its scalar `factor` is
//! one over the step's trained tokens.
//!
//! Version 2 of `cross_entropy_backward` is the same, but the output may take the memory of the
//! logits. The core asks for it where nothing else reads them.

use super::definition::{OpCall, OpDefinition, per_token, reduced, written};
use crate::graph::{Attributes, Graph, ValueId, ValueType};
use crate::{DType, Result};

pub(super) static CROSS_ENTROPY: OpDefinition = OpDefinition {
    inputs: &["logits", "labels"],
    outputs: &[written("loss"), written("lse"), written("correct")],
    ..OpDefinition::new("cross_entropy", |call| {
        call.width(0)?;
        call.expect_integers(&[1])?;
        let each = per_token(reduced(call.inputs[0].dtype));
        Ok(vec![each.clone(), each, per_token(DType::I32)])
    })
};

pub(super) static CROSS_ENTROPY_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["logits", "labels", "lse"],
    outputs: &[written("dlogits")],
    scalars: &["factor"],
    ..OpDefinition::new("cross_entropy_backward", infer_backward)
};

pub(super) static CROSS_ENTROPY_BACKWARD_2: OpDefinition = OpDefinition {
    inputs: CROSS_ENTROPY_BACKWARD.inputs,
    outputs: CROSS_ENTROPY_BACKWARD.outputs,
    scalars: CROSS_ENTROPY_BACKWARD.scalars,
    in_place: Some(0),
    ..OpDefinition::fused("cross_entropy_backward", 2, infer_backward)
};

fn infer_backward(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    call.width(0)?;
    call.expect_integers(&[1])?;
    let logits = call.float(0)?;
    call.expect(2, &per_token(reduced(logits.dtype)))?;
    Ok(vec![logits])
}

/// Loss, log-sum-exp and whether the label was the likeliest token, each `[T]`.
pub fn cross_entropy(graph: &mut Graph, logits: ValueId, labels: ValueId) -> [ValueId; 3] {
    let reduce = per_token(DType::REDUCE);
    let outputs = vec![reduce.clone(), reduce, per_token(DType::I32)];
    let inputs = [logits, labels];
    let first = graph.node("cross_entropy", &inputs, &[], outputs, Attributes::new());
    [first, first + 1, first + 2]
}
