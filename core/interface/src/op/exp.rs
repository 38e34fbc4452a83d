//! `exp`, a primitive: x -> `e^x`, element by element.

use super::definition::{OpDefinition, written};

pub(super) static EXP: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    ..OpDefinition::primitive("exp", |call| Ok(vec![call.float(0)?]))
};
