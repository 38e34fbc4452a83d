//! The backward rule of each op.

use espalier_interface::Result;
use espalier_interface::graph::Attributes;

use super::{Tape, Target, no_rule};
use crate::splice::Placed;

/// Appends what carries the gradient of `placed`'s outputs to its inputs and params.
pub(super) fn apply(tape: &mut Tape<'_>, placed: &Placed) -> Result<()> {
    let node = &placed.node;
    if node.op == "cross_entropy" {
        return cross_entropy(tape, placed);
    }
    let Some(dy) = tape.arrived(placed) else {
        return Ok(());
    };
    let attributes = node.attributes.clone();
    match node.op.as_str() {
        "embedding" => {
            if tape.trainable[node.params[0]] {
                let target = vec![Target::Gradient(node.params[0])];
                let inputs = vec![dy, node.inputs[0]];
                tape.emit(
                    placed,
                    "embedding_backward",
                    inputs,
                    vec![],
                    target,
                    attributes,
                );
            }
        }
        "linear" => linear(tape, placed, dy),
        "rms_norm" => {
            let (x, weight) = (node.inputs[0], node.params[0]);
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
        "scale_channels" => {
            let (x, weight) = (node.inputs[0], node.params[0]);
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
        "rope" => {
            let (x, positions) = (node.inputs[0], node.inputs[1]);
            tape.chain(
                placed,
                "rope_backward",
                x,
                vec![dy, positions],
                vec![],
                attributes,
            );
        }
        "attention" => attention(tape, placed, dy),
        "swiglu" => {
            let (gate, up) = (node.inputs[0], node.inputs[1]);
            let (dgate, dup) = (tape.like(gate), tape.like(up));
            let targets = vec![Target::Value(dgate), Target::Value(dup)];
            tape.emit(
                placed,
                "swiglu_backward",
                vec![dy, gate, up],
                vec![],
                targets,
                attributes,
            );
            tape.arrive(gate, dgate, placed);
            tape.arrive(up, dup, placed);
        }
        "add" => {
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
        "mul" => {
            let (a, b) = (node.inputs[0], node.inputs[1]);
            for (to, other) in [(a, b), (b, a)] {
                if tape.needs[to] {
                    tape.chain(
                        placed,
                        "mul",
                        to,
                        vec![dy, other],
                        vec![],
                        Attributes::new(),
                    );
                }
            }
        }
        "scale" => tape.chain(
            placed,
            "scale",
            node.inputs[0],
            vec![dy],
            vec![],
            attributes,
        ),
        "dropout" => {
            let inputs = vec![dy, node.inputs[1], node.inputs[2]];
            tape.chain(
                placed,
                "dropout",
                node.inputs[0],
                inputs,
                vec![],
                attributes,
            );
        }
        other => return Err(no_rule(other)),
    }
    Ok(())
}

fn linear(tape: &mut Tape<'_>, placed: &Placed, dy: usize) {
    let node = &placed.node;
    let (x, weight) = (node.inputs[0], node.params[0]);
    if tape.trainable[weight] {
        let target = vec![Target::Gradient(weight)];
        let op = "linear_weight_backward";
        tape.emit(placed, op, vec![dy, x], vec![], target, Attributes::new());
    }
    if let Some(&bias) = node.params.get(1).filter(|&&bias| tape.trainable[bias]) {
        let target = vec![Target::Gradient(bias)];
        tape.emit(
            placed,
            "bias_backward",
            vec![dy],
            vec![],
            target,
            Attributes::new(),
        );
    }
    if tape.needs[x] {
        let op = "linear_input_backward";
        tape.chain(placed, op, x, vec![dy], vec![weight], Attributes::new());
    }
}

fn attention(tape: &mut Tape<'_>, placed: &Placed, dout: usize) {
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
    let attributes = node.attributes.clone();
    tape.emit(
        placed,
        "attention_backward",
        inputs,
        vec![],
        targets,
        attributes,
    );
    for (value, gradient) in [q, k, v].into_iter().zip(made) {
        tape.arrive(value, gradient, placed);
    }
}

/// The loss is the root: its gradient is a factor given at launch, one over the step's trained tokens.
fn cross_entropy(tape: &mut Tape<'_>, placed: &Placed) -> Result<()> {
    let node = &placed.node;
    let (logits, labels, lse) = (node.inputs[0], node.inputs[1], node.outputs[1]);
    if tape.needs[logits] {
        let inputs = vec![logits, labels, lse];
        let op = "cross_entropy_backward";
        tape.chain(placed, op, logits, inputs, vec![], node.attributes.clone());
    }
    Ok(())
}
