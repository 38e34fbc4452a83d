//! The backward rule of `dropout`.

use espalier_interface::graph::ValueId;

use crate::grad::Tape;
use crate::splice::Placed;

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
