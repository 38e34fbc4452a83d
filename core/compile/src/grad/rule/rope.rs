//! The backward rule of `rope`.

use espalier_interface::graph::ValueId;

use crate::grad::Tape;
use crate::splice::Placed;

pub(super) fn rope(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let (x, positions) = (node.inputs[0], node.inputs[1]);
    let (op, attributes) = ("rope_backward", node.attributes.clone());
    tape.chain(placed, op, x, vec![dy, positions], vec![], attributes);
}
