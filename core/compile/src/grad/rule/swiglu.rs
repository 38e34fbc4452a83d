//! The backward rule of `swiglu`.

use espalier_interface::graph::ValueId;

use crate::grad::{Tape, Target};
use crate::splice::Placed;

pub(super) fn swiglu(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let (gate, up) = (node.inputs[0], node.inputs[1]);
    let (dgate, dup) = (tape.like(gate), tape.like(up));
    let inputs = vec![dy, gate, up];
    let targets = vec![Target::Value(dgate), Target::Value(dup)];
    let (op, attributes) = ("swiglu_backward", node.attributes.clone());
    tape.emit(placed, op, inputs, vec![], targets, attributes);
    tape.arrive(gate, dgate, placed);
    tape.arrive(up, dup, placed);
}
