//! `cast`: x -> y, the nearest numbers of another dtype, ties to even.

use super::definition::{OpDefinition, written};
use crate::graph::ValueType;

pub(super) static CAST: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    ..OpDefinition::new("cast", |call| {
        let dtype = call.stated_float(0)?;
        Ok(vec![ValueType {
            dtype,
            ..call.float(0)?
        }])
    })
};
