//! `mul`: a, b -> `a * b`.

use super::definition::{OpDefinition, written};

pub(super) static MUL: OpDefinition = OpDefinition {
    inputs: &["a", "b"],
    outputs: &[written("y")],
    ..OpDefinition::new("mul", |call| {
        let a = call.float(0)?;
        call.expect(1, &a)?;
        Ok(vec![a])
    })
};
