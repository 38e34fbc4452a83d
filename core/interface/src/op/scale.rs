//! `scale`: a -> `alpha * a`. It may write its output over `a`.

use super::definition::{AttributeKind, OpDefinition, needed, written};

pub(super) static SCALE: OpDefinition = OpDefinition {
    inputs: &["a"],
    outputs: &[written("y")],
    attributes: &[needed("alpha", AttributeKind::Number)],
    ..OpDefinition::new("scale", |call| Ok(vec![call.float(0)?]))
};
