//! Backward rules of the ops with a weight: `embedding`, `linear`, `rms_norm`, `scale_channels`.

use espalier_interface::graph::{Attributes, ValueId};

use crate::grad::{Tape, Target};
use crate::splice::Placed;

pub(super) fn embedding(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    if tape.trainable[node.params[0]] {
        let target = vec![Target::Gradient(node.params[0])];
        let inputs = vec![dy, node.inputs[0]];
        let (op, attributes) = ("embedding_backward", node.attributes.clone());
        tape.emit(placed, op, inputs, vec![], target, attributes);
    }
}

pub(super) fn linear(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let (x, weight) = (node.inputs[0], node.params[0]);
    if tape.trainable[weight] {
        let target = vec![Target::Gradient(weight)];
        let op = "linear_weight_backward";
        tape.emit(placed, op, vec![dy, x], vec![], target, Attributes::new());
    }
    if let Some(&bias) = node.params.get(1).filter(|&&bias| tape.trainable[bias]) {
        let target = vec![Target::Gradient(bias)];
        let op = "bias_backward";
        tape.emit(placed, op, vec![dy], vec![], target, Attributes::new());
    }
    if tape.needs[x] {
        let op = "linear_input_backward";
        tape.chain(placed, op, x, vec![dy], vec![weight], Attributes::new());
    }
}

pub(super) fn rms_norm(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let (x, weight) = (node.inputs[0], node.params[0]);
    let attributes = node.attributes.clone();
    if tape.trainable[weight] {
        let target = vec![Target::Gradient(weight)];
        let op = "rms_norm_weight_backward";
        tape.emit(placed, op, vec![dy, x], vec![], target, attributes.clone());
    }
    if tape.needs[x] {
        let op = "rms_norm_backward";
        tape.chain(placed, op, x, vec![dy, x], vec![weight], attributes);
    }
}

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
