//! The backward rule of `embedding`.

use espalier_interface::graph::ValueId;

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
