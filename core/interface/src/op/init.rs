//! `init`: -> y `[n]`, the initial values of a param: `kind` is `zeros`, `ones`, `uniform` in
//! `[-bound, bound)` or `normal` of deviation `std`.

use super::definition::{AttributeKind, OpCall, OpDefinition, needed, optional, written};
use crate::Result;
use crate::graph::ValueType;

pub(super) static INIT: OpDefinition = OpDefinition {
    outputs: &[written("y")],
    attributes: &[
        needed("kind", AttributeKind::Text),
        optional("bound", AttributeKind::Number),
        optional("std", AttributeKind::Number),
    ],
    scalars: &["seed_low", "seed_high", "param"],
    ..OpDefinition::new("init", infer)
};

fn infer(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let kind = call.attributes.text("kind").unwrap_or_default();
    let number = match kind {
        "zeros" | "ones" => None,
        "uniform" => Some("bound"),
        "normal" => Some("std"),
        _ => {
            return Err(call.invalid(format!(
                "attribute `kind` is `{kind}`, expected zeros, ones, uniform or normal"
            )));
        }
    };
    if let Some(number) = number {
        call.attributes.number(number)?;
    }
    call.stated_float(0)?;
    Ok(vec![call.outputs[0].to_value()])
}
