//! The backward rule of `scale_by`: the same of the gradient, and for the numbers a sum over
//! tokens.

use espalier_interface::graph::{Attributes, ValueId};

use crate::grad::Tape;
use crate::splice::Placed;

pub(super) fn scale_by(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let (x, factors) = (node.inputs[0], node.inputs[1]);
    if tape.needs[factors] {
        let op = "scale_by_backward";
        tape.chain(placed, op, factors, vec![dy, x], vec![], Attributes::new());
    }
    if tape.needs[x] {
        let inputs = vec![dy, factors];
        tape.chain(placed, "scale_by", x, inputs, vec![], Attributes::new());
    }
}
