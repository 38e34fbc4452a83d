//! The backward rule of `scale_channels`.

use espalier_interface::graph::ValueId;

use crate::grad::{Tape, Target};
use crate::splice::Placed;

pub(super) fn scale_channels(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let (x, weight) = (node.inputs[0], node.params[0]);
    let attributes = node.attributes.clone();
    if tape.trainable[weight] {
        let target = vec![Target::Gradient(weight)];
        let op = "scale_channels_weight_backward";
        tape.emit(placed, op, vec![dy, x], vec![], target, attributes.clone());
    }
    if tape.needs[x] {
        let op = "scale_channels";
        tape.chain(placed, op, x, vec![dy], vec![weight], attributes);
    }
}
