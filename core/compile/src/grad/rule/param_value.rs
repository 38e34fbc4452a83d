//! The backward rule of `param_value`.

use espalier_interface::graph::{Attributes, ValueId};

use crate::grad::{Tape, Target};
use crate::splice::Placed;

pub(super) fn param_value(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let target = vec![Target::Gradient(placed.node.params[0])];
    let op = "param_value_backward";
    tape.emit(placed, op, vec![dy], vec![], target, Attributes::new());
}
