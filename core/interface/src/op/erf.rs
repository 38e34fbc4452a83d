//! `erf`, a primitive: x -> the error function, `2 / sqrt(pi)` times the integral of `e^(-t^2)`
//! from 0 to x, element by element.

use super::definition::{OpDefinition, written};

pub(super) static ERF: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    ..OpDefinition::primitive("erf", |call| Ok(vec![call.float(0)?]))
};
