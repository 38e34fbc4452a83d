//! A weight's product and the low-rank one of its adapter -> one call.

use espalier_interface::graph::{Graph, ParamId, ValueId};

use super::{Call, FUSED, RESIDUAL, alpha, pairs};
use crate::grad::GradNode;
use crate::splice::{Placed, UnitGraph};

/// The version of `linear` and `linear_input_backward` that computes both.
pub(super) const ADAPTED: u32 = 4;

/// Makes one call of each low-rank product and the weight's product that it is added to, where
/// nothing else reads that.
pub(super) fn products(unit: &mut UnitGraph, uses: &[usize]) {
    let UnitGraph { nodes, graph, .. } = unit;
    let mut at = 0;
    while at < nodes.len() {
        let found = weight_product(nodes, at, uses);
        let is_of_low_rank = |base: &usize| {
            let params = [&nodes[*base], &nodes[at]].map(|placed| placed.node.params[0]);
            is_of_low_rank(graph, params, 1)
        };
        let Some(base) = found.filter(is_of_low_rank) else {
            at += 1;
            continue;
        };
        let base = nodes.remove(base);
        let both = &mut nodes[at - 1];
        both.node.version = ADAPTED;
        // In the place of what was added.
        both.node.inputs.remove(1);
        both.node.inputs.insert(0, base.node.inputs[0]);
        both.node.params.insert(0, base.node.params[0]);
        both.node.params.extend_from_slice(&base.node.params[1..]);
        both.site = base.site;
    }
}

/// The place of the weight's product that the low-rank one at `at` is added to.
fn weight_product(nodes: &[Placed], at: usize, uses: &[usize]) -> Option<usize> {
    let low_rank = &nodes[at];
    let is_sum = [("linear", FUSED), ("linear", RESIDUAL.version)].contains(&low_rank.op());
    // A low-rank weight has no bias.
    if !is_sum || low_rank.node.params.len() != 1 {
        return None;
    }
    let added = *low_rank.inputs().get(1)?;
    let found = maker(&nodes[..at], added, uses)?;
    (nodes[found].op() == ("linear", 1)).then_some(found)
}

/// Makes one call of each gradient of an adapted product's input: by the low-rank weight, with that
/// weight's own, and by the weight on top of it.
pub(super) fn gradients(graph: &Graph, nodes: &mut Vec<GradNode>, uses: &[usize]) {
    let mut at = 0;
    while at < nodes.len() {
        let found = low_rank_gradients(nodes, at, uses);
        let is_of_low_rank = |low_rank: &usize| {
            let params = [&nodes[at], &nodes[*low_rank]].map(|node| node.params[0]);
            is_of_low_rank(graph, params, 0)
        };
        let Some(low_rank) = found.filter(is_of_low_rank) else {
            at += 1;
            continue;
        };
        let low_rank = nodes.remove(low_rank);
        let both = &mut nodes[at - 1];
        both.version = ADAPTED;
        // In the place of what was added.
        both.inputs.truncate(1);
        both.inputs.extend(low_rank.inputs);
        both.params.extend(low_rank.params);
        both.outputs.extend_from_slice(&low_rank.outputs[1..]);
        both.attributes = low_rank.attributes;
    }
}

/// The place of the gradients by and of a low-rank weight to which the call at `at` adds the one by
/// the weight.
fn low_rank_gradients(nodes: &[GradNode], at: usize, uses: &[usize]) -> Option<usize> {
    let product = &nodes[at];
    if product.op() != ("linear_input_backward", FUSED) || alpha(product) != 1.0 {
        return None;
    }
    let added = *product.inputs.get(1)?;
    let found = maker(&nodes[..at], added, uses)?;
    let low_rank = &nodes[found];
    // Gradients of a weight are added in order.
    let mut between = nodes[found + 1..at].iter();
    let adds = |node: &GradNode| node.outputs.contains(&low_rank.outputs[1]);
    let is_both = low_rank.op() == ("linear_input_backward", pairs::GRADIENTS);
    (is_both && !between.any(adds)).then_some(found)
}

/// Whether a weight is wider and longer than the rank of another one, which is an extent of that.
fn is_of_low_rank(graph: &Graph, [weight, low_rank]: [ParamId; 2], extent: usize) -> bool {
    let rank = graph.params[low_rank].shape[extent];
    graph.params[weight]
        .shape
        .iter()
        .all(|&extent| rank < extent)
}

/// The place of the call that makes `value`, which is read once.
fn maker<C: Call>(calls: &[C], value: ValueId, uses: &[usize]) -> Option<usize> {
    let found = calls.iter().position(|call| call.made() == Some(value));
    found.filter(|_| uses[value] == 1)
}
