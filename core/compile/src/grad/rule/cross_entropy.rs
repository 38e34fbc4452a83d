//! The backward rule of `cross_entropy`.

use crate::grad::Tape;
use crate::splice::Placed;

/// The loss is the root of the backward pass. Its gradient is a factor given at launch: one over
/// the step's trained tokens.
pub(super) fn cross_entropy(tape: &mut Tape<'_>, placed: &Placed) {
    let node = &placed.node;
    let (logits, labels, lse) = (node.inputs[0], node.inputs[1], node.outputs[1]);
    if tape.needs[logits] {
        let inputs = vec![logits, labels, lse];
        let op = "cross_entropy_backward";
        tape.chain(placed, op, logits, inputs, vec![], node.attributes.clone());
    }
}
