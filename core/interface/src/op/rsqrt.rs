//! `rsqrt`, a primitive: x -> `1 / sqrt(alpha x + beta)`, element by element.

use super::definition::{AttributeKind, OpDefinition, optional, written};

pub(super) static RSQRT: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    attributes: &[
        optional("alpha", AttributeKind::Number),
        optional("beta", AttributeKind::Number),
    ],
    ..OpDefinition::primitive("rsqrt", |call| Ok(vec![call.float(0)?]))
};
