//! The backward rule of `gelu`.

use espalier_interface::graph::ValueId;

use crate::grad::Tape;
use crate::splice::Placed;

pub(super) fn gelu(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let (x, attributes) = (placed.node.inputs[0], placed.node.attributes.clone());
    if tape.needs[x] {
        tape.chain(placed, "gelu_backward", x, vec![dy, x], vec![], attributes);
    }
}
