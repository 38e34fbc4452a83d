//! `sigmoid`, a primitive: x -> `1 / (1 + e^-x)`, element by element.

use super::definition::{OpDefinition, written};

pub(super) static SIGMOID: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    ..OpDefinition::primitive("sigmoid", |call| Ok(vec![call.float(0)?]))
};
