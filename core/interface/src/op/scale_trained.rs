//! `scale_trained`, a primitive: x `[T, N]`, labels `[T]` -> `factor * x`; 0 where the label is
//! -100, for any x there. The scalar `factor` is one over the step's trained tokens.

use super::definition::{OpDefinition, written};

pub(super) static SCALE_TRAINED: OpDefinition = OpDefinition {
    inputs: &["x", "labels"],
    outputs: &[written("y")],
    scalars: &["factor"],
    ..OpDefinition::primitive("scale_trained", |call| {
        call.width(0)?;
        call.expect_integers(&[1])?;
        Ok(vec![call.float(0)?])
    })
};
