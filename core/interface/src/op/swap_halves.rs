//! `swap_halves`, a primitive: x `[T, H K]` -> each head of `head_dim` (K) columns with its first
//! `half` columns and the `half` after them exchanged; the rest is copied.

use super::definition::{AttributeKind, OpDefinition, needed, written};

pub(super) static SWAP_HALVES: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    attributes: &[
        needed("head_dim", AttributeKind::Count),
        needed("half", AttributeKind::Count),
    ],
    ..OpDefinition::primitive("swap_halves", |call| {
        let (width, head, half) = (call.width(0)?, call.count("head_dim")?, call.count("half")?);
        if !width.is_multiple_of(head) || half > head / 2 {
            return Err(call.invalid(format!(
                "halves of {half} in heads of {head} columns do not fit {width} columns"
            )));
        }
        Ok(vec![call.float(0)?])
    })
};
