//! The backward rule of `layer_norm`.

use espalier_interface::graph::{Attributes, ValueId};

use crate::grad::{Tape, Target};
use crate::splice::Placed;

pub(super) fn layer_norm(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let (x, weight) = (node.inputs[0], node.params[0]);
    let eps = node.attributes.clone();
    if tape.trainable[weight] {
        let target = vec![Target::Gradient(weight)];
        let op = "layer_norm_weight_backward";
        tape.emit(placed, op, vec![dy, x], vec![], target, eps.clone());
    }
    if let Some(&bias) = node.params.get(1).filter(|&&bias| tape.trainable[bias]) {
        let target = vec![Target::Gradient(bias)];
        let op = "bias_backward";
        tape.emit(placed, op, vec![dy], vec![], target, Attributes::new());
    }
    if tape.needs[x] {
        let op = "layer_norm_backward";
        tape.chain(placed, op, x, vec![dy, x], vec![weight], eps);
    }
}
