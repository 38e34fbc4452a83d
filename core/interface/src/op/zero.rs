//! `zero`: -> y, zero bytes.

use super::definition::{OpDefinition, written};

pub(super) static ZERO: OpDefinition = OpDefinition {
    outputs: &[written("y")],
    ..OpDefinition::new("zero", |call| Ok(vec![call.outputs[0].to_value()]))
};
