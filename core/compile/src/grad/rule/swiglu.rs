//! The backward rules of `swiglu` and `geglu_tanh`.

use espalier_interface::graph::ValueId;

use crate::grad::{Tape, Target};
use crate::splice::Placed;

pub(super) fn swiglu(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    gated(tape, placed, dy, "swiglu_backward");
}

pub(super) fn geglu_tanh(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    gated(tape, placed, dy, "geglu_tanh_backward");
}

/// The gradients of gate and up, by `op`.
fn gated(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId, op: &'static str) {
    let node = &placed.node;
    let (gate, up) = (node.inputs[0], node.inputs[1]);
    let (dgate, dup) = (tape.like(gate), tape.like(up));
    let inputs = vec![dy, gate, up];
    let targets = vec![Target::Value(dgate), Target::Value(dup)];
    let attributes = node.attributes.clone();
    tape.emit(placed, op, inputs, vec![], targets, attributes);
    tape.arrive(gate, dgate, placed);
    tape.arrive(up, dup, placed);
}
