//! The backward rule of `scale`.

use espalier_interface::graph::ValueId;

use crate::grad::Tape;
use crate::splice::Placed;

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
