//! `sinusoids`, a primitive: positions `[T]` -> y `[T, K]`: `amplitude_i f(position inv_freq_i)`,
//! where `function` f is `cos` or `sin`.

use super::definition::{AttributeKind, OpCall, OpDefinition, needed, rows, written};
use crate::Result;
use crate::graph::ValueType;

pub(super) static SINUSOIDS: OpDefinition = OpDefinition {
    inputs: &["positions"],
    outputs: &[written("y")],
    attributes: &[
        needed("inv_freq", AttributeKind::Numbers),
        needed("amplitude", AttributeKind::Numbers),
        needed("function", AttributeKind::Text),
    ],
    ..OpDefinition::primitive("sinusoids", infer)
};

fn infer(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    call.expect_integers(&[0])?;
    let [columns, amplitudes] = [
        call.attributes.numbers("inv_freq")?.len(),
        call.attributes.numbers("amplitude")?.len(),
    ];
    if columns != amplitudes || columns == 0 {
        return Err(call.invalid(format!(
            "attribute `amplitude` has {amplitudes} numbers and `inv_freq` {columns}, expected as \
             many of each, at least 1"
        )));
    }
    let function = call.attributes.name("function")?;
    if !["cos", "sin"].contains(&function) {
        return Err(call.invalid(format!(
            "attribute `function` is `{function}`, expected cos or sin"
        )));
    }
    Ok(vec![rows(columns as u64, call.stated_float(0)?)])
}
