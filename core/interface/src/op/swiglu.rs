//! `swiglu`: gate, up `[T, F]` -> `silu(gate) * up`. `swiglu_backward`: dy, gate, up -> dgate, dup.

use super::definition::{OpCall, OpDefinition, written};
use crate::Result;
use crate::graph::{Attributes, Graph, ValueId, ValueType};

pub(super) static SWIGLU: OpDefinition = OpDefinition {
    inputs: &["gate", "up"],
    outputs: &[written("y")],
    recomputed_in_full_training: true,
    ..OpDefinition::new("swiglu", infer)
};

pub(super) static SWIGLU_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "gate", "up"],
    outputs: &[written("dgate"), written("dup")],
    ..OpDefinition::new("swiglu_backward", infer_backward)
};

/// Gate and up are alike, and the output is like them.
pub(super) fn infer(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let gate = call.float(0)?;
    call.expect(1, &gate)?;
    Ok(vec![gate])
}

/// The gradients of gate and up, which are like them.
pub(super) fn infer_backward(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let dy = call.float(0)?;
    call.expect_all(&[1, 2], &dy)?;
    Ok(vec![dy.clone(), dy])
}

/// `silu(gate) * up`.
pub fn swiglu(graph: &mut Graph, gate: ValueId, up: ValueId) -> ValueId {
    let ty = graph.type_of(gate).clone();
    graph.node("swiglu", &[gate, up], &[], vec![ty], Attributes::new())
}
