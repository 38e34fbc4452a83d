//! The backward rule of `attention`.

use espalier_interface::graph::ValueId;

use crate::grad::{Tape, Target};
use crate::splice::Placed;

pub(super) fn attention(tape: &mut Tape<'_>, placed: &Placed, dout: ValueId) {
    let node = &placed.node;
    let [q, k, v, cu_seqlens] = [
        node.inputs[0],
        node.inputs[1],
        node.inputs[2],
        node.inputs[3],
    ];
    let (out, lse) = (node.outputs[0], node.outputs[1]);
    let made = [tape.like(q), tape.like(k), tape.like(v)];
    let inputs = vec![dout, q, k, v, out, lse, cu_seqlens];
    let targets = made.map(Target::Value).to_vec();
    let (op, attributes) = ("attention_backward", node.attributes.clone());
    tape.emit(placed, op, inputs, vec![], targets, attributes);
    for (value, gradient) in [q, k, v].into_iter().zip(made) {
        tape.arrive(value, gradient, placed);
    }
}
