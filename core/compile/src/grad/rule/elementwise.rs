//! Backward rules of the elementwise ops: `swiglu`, `add`, `mul`, `scale`, `dropout`.

use espalier_interface::graph::{Attributes, ValueId};

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

/// Of `a + alpha * b`.
pub(super) fn add(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let (a, b) = (node.inputs[0], node.inputs[1]);
    let alpha = node.attributes.optional_number("alpha").unwrap_or(1.0);
    if tape.needs[b] {
        if alpha == 1.0 {
            tape.arrive(b, dy, placed);
        } else {
            let scaled = Attributes::new().with("alpha", alpha);
            tape.chain(placed, "scale", b, vec![dy], vec![], scaled);
        }
    }
    if tape.needs[a] {
        tape.arrive(a, dy, placed);
    }
}

pub(super) fn mul(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let (a, b) = (node.inputs[0], node.inputs[1]);
    for (to, other) in [(a, b), (b, a)] {
        if tape.needs[to] {
            let inputs = vec![dy, other];
            tape.chain(placed, "mul", to, inputs, vec![], Attributes::new());
        }
    }
}

pub(super) fn scale(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let attributes = node.attributes.clone();
    tape.chain(
        placed,
        "scale",
        node.inputs[0],
        vec![dy],
        vec![],
        attributes,
    );
}

/// The gradient of a dropout is the same dropout of the gradient: both draw the same mask.
pub(super) fn dropout(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let inputs = vec![dy, node.inputs[1], node.inputs[2]];
    let attributes = node.attributes.clone();
    tape.chain(
        placed,
        "dropout",
        node.inputs[0],
        inputs,
        vec![],
        attributes,
    );
}
