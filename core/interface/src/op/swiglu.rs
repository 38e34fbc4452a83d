//! `swiglu`: gate, up `[T, F]` -> `silu(gate) * up`. `swiglu_backward`: dy, gate, up -> dgate, dup.

use super::definition::{OpDefinition, written};
use crate::graph::{Attributes, Graph, ValueId};

pub(super) static SWIGLU: OpDefinition = OpDefinition {
    inputs: &["gate", "up"],
    outputs: &[written("y")],
    ..OpDefinition::new("swiglu", |call| {
        let gate = call.float(0)?;
        call.expect(1, &gate)?;
        Ok(vec![gate])
    })
};

pub(super) static SWIGLU_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "gate", "up"],
    outputs: &[written("dgate"), written("dup")],
    ..OpDefinition::new("swiglu_backward", |call| {
        let dy = call.float(0)?;
        call.expect_all(&[1, 2], &dy)?;
        Ok(vec![dy.clone(), dy])
    })
};

/// `silu(gate) * up`.
pub fn swiglu(graph: &mut Graph, gate: ValueId, up: ValueId) -> ValueId {
    let ty = graph.type_of(gate).clone();
    graph.node("swiglu", &[gate, up], &[], vec![ty], Attributes::new())
}
