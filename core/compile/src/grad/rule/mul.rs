//! The backward rule of `mul`.

use espalier_interface::graph::{Attributes, ValueId};

use crate::grad::Tape;
use crate::splice::Placed;

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
