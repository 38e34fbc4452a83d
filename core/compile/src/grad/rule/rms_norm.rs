//! The backward rules of `rms_norm` and `rms_norm_offset`.

use espalier_interface::graph::ValueId;

use crate::grad::{Tape, Target};
use crate::splice::Placed;

pub(super) fn rms_norm(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let ops = ["rms_norm_backward", "rms_norm_weight_backward"];
    backward(tape, placed, dy, ops);
}

pub(super) fn rms_norm_offset(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let ops = [
        "rms_norm_offset_backward",
        "rms_norm_offset_weight_backward",
    ];
    backward(tape, placed, dy, ops);
}

/// The gradients of input and weight, by an op each.
fn backward(
    tape: &mut Tape<'_>,
    placed: &Placed,
    dy: ValueId,
    [of_input, of_weight]: [&'static str; 2],
) {
    let node = &placed.node;
    let (x, weight) = (node.inputs[0], node.params[0]);
    let attributes = node.attributes.clone();
    if tape.trainable[weight] {
        let target = vec![Target::Gradient(weight)];
        let inputs = vec![dy, x];
        tape.emit(
            placed,
            of_weight,
            inputs,
            vec![],
            target,
            attributes.clone(),
        );
    }
    if tape.needs[x] {
        let inputs = vec![dy, x];
        tape.chain(placed, of_input, x, inputs, vec![weight], attributes);
    }
}
