//! Two calls that read the same values -> one.

use super::{Call, alpha};
use crate::grad::{GradNode, Target};

/// The version of `linear_input_backward` that adds the weight's gradient, too.
pub(super) const GRADIENTS: u32 = 3;

/// The place of two calls as one.
enum Place {
    /// That of the first.
    First,
    /// That of the second.
    Second,
}

/// Makes one call of two of `op`, a rotation of heads, by the same positions and attributes.
pub(super) fn rotations<C: Call>(mut calls: Vec<C>, op: &str) -> Vec<C> {
    let mut first = 0;
    while first < calls.len() {
        let Some((second, place)) = partner(&calls, first, op) else {
            first += 1;
            continue;
        };
        let (k, q) = (calls.remove(second), calls.remove(first));
        let inputs = vec![q.inputs()[0], k.inputs()[0], q.inputs()[1]];
        let at = match place {
            Place::First => first,
            Place::Second => second - 1,
        };
        calls.insert(at, q.with(k, inputs));
    }
    calls
}

/// The next rotation that the one at `first` may be joined with, and where.
fn partner<C: Call>(calls: &[C], first: usize, op: &str) -> Option<(usize, Place)> {
    let q = &calls[first];
    if q.op() != (op, 1) {
        return None;
    }
    let rotated = q.made()?;
    for (second, k) in calls.iter().enumerate().skip(first + 1) {
        let is_alike = k.op() == (op, 1) && k.attributes() == q.attributes();
        if !is_alike || k.inputs()[1..] != q.inputs()[1..] {
            continue;
        }
        let mut between = calls[first + 1..=second].iter();
        if !between.any(|call| call.inputs().contains(&rotated)) {
            return Some((second, Place::Second));
        }
        let mut before = calls[first..second].iter();
        if !before.any(|call| call.makes(k.inputs())) {
            return Some((second, Place::First));
        }
    }
    None
}

/// Makes one call of each weight's gradient and the gradient of its product's input.
pub(super) fn gradients(nodes: &mut Vec<GradNode>) {
    let mut at = 0;
    while at < nodes.len() {
        let Some(of_input) = input_gradient(nodes, at) else {
            at += 1;
            continue;
        };
        let of_weight = nodes.remove(at);
        let both = &mut nodes[of_input - 1];
        both.version = GRADIENTS;
        both.inputs.insert(1, of_weight.inputs[1]);
        both.outputs.extend(of_weight.outputs);
    }
}

/// The gradient of the input of the product whose weight's gradient is at `at`, if it may be added
/// to that gradient's place.
fn input_gradient(nodes: &[GradNode], at: usize) -> Option<usize> {
    let of_weight = &nodes[at];
    let &[Target::Gradient(weight)] = &of_weight.outputs[..] else {
        return None;
    };
    let is_of_input = |node: &GradNode| {
        let is_product = node.op == "linear_input_backward" && node.version < GRADIENTS;
        let reads = node.params == [weight] && node.inputs[0] == of_weight.inputs[0];
        is_product && reads && alpha(node) == alpha(of_weight)
    };
    if of_weight.op != "linear_weight_backward" {
        return None;
    }
    let found = nodes.iter().skip(at + 1).position(is_of_input)? + at + 1;
    // Gradients of a weight are added in order.
    let mut between = nodes[at + 1..found].iter();
    let adds = |node: &GradNode| node.outputs.contains(&Target::Gradient(weight));
    (!between.any(adds)).then_some(found)
}
