//! The backward rule of `add`.

use espalier_interface::graph::{Attributes, ValueId};

use crate::grad::Tape;
use crate::splice::Placed;

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
