//! `log`, a primitive: x -> the natural logarithm, element by element.

use super::definition::{OpDefinition, written};

pub(super) static LOG: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    ..OpDefinition::primitive("log", |call| Ok(vec![call.float(0)?]))
};
