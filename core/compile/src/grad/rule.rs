//! The backward rule of each op.

mod attention;
mod elementwise;
mod weighted;

use espalier_interface::Result;

use super::{Tape, no_rule};
use crate::splice::Placed;

/// Appends what carries the gradient of `placed`'s outputs to its inputs and params.
///
/// # Errors
/// `UNSUPPORTED` for an op without a rule.
pub(super) fn apply(tape: &mut Tape<'_>, placed: &Placed) -> Result<()> {
    if placed.node.op == "cross_entropy" {
        cross_entropy(tape, placed);
        return Ok(());
    }
    let Some(dy) = tape.arrived(placed) else {
        return Ok(());
    };
    match placed.node.op.as_str() {
        "embedding" => weighted::embedding(tape, placed, dy),
        "linear" => weighted::linear(tape, placed, dy),
        "rms_norm" => weighted::rms_norm(tape, placed, dy),
        "scale_channels" => weighted::scale_channels(tape, placed, dy),
        "rope" => attention::rope(tape, placed, dy),
        "attention" => attention::attention(tape, placed, dy),
        "swiglu" => elementwise::swiglu(tape, placed, dy),
        "add" => elementwise::add(tape, placed, dy),
        "mul" => elementwise::mul(tape, placed, dy),
        "scale" => elementwise::scale(tape, placed, dy),
        "dropout" => elementwise::dropout(tape, placed, dy),
        other => return Err(no_rule(other)),
    }
    Ok(())
}

/// The loss is the root of the backward pass. Its gradient is a factor given at launch: one over
/// the step's trained tokens.
fn cross_entropy(tape: &mut Tape<'_>, placed: &Placed) {
    let node = &placed.node;
    let (logits, labels, lse) = (node.inputs[0], node.inputs[1], node.outputs[1]);
    if tape.needs[logits] {
        let inputs = vec![logits, labels, lse];
        let op = "cross_entropy_backward";
        tape.chain(placed, op, logits, inputs, vec![], node.attributes.clone());
    }
}
