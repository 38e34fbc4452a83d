//! The backward rule of `slice_columns`: a slice's gradient is added to what has arrived of others.

use espalier_interface::graph::ValueId;

use crate::grad::{Tape, Target};
use crate::splice::Placed;

pub(super) fn slice_columns(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let x = placed.node.inputs[0];
    let (made, attributes) = (tape.like(x), placed.node.attributes.clone());
    let mut inputs = vec![dy];
    inputs.extend(tape.grads[x]);
    let target = vec![Target::Value(made)];
    let op = "slice_columns_backward";
    tape.emit(placed, op, inputs, vec![], target, attributes);
    tape.grads[x] = Some(made);
}
