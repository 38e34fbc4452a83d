//! The values that a backward pass reads -> those that the forward pass saves, and those computed
//! again.
//!
//! The policy does not change a bit of the results. Saved values keep their dtype, and the same
//! kernels compute the others again.

use std::collections::BTreeSet;

use espalier_interface::graph::{Dim, Source, ValueId};
use espalier_interface::op::{self, OpDefinition};
use serde::{Deserialize, Serialize};

use crate::grad::Backward;
use crate::splice::UnitGraph;

/// Which activations are computed again in the backward pass. Results are the same bit for bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    /// None: all activations are saved, but in full training the outputs of gates.
    #[default]
    None,
    /// All but the outputs of ops that are costly, such as products: each op's definition says so.
    Selective,
    /// All of a layer: only its input is saved.
    Layer,
}

/// Which values of the forward pass are saved and which are computed again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Values that the forward pass saves, besides the unit's input.
    pub saved: BTreeSet<ValueId>,
    /// Nodes of the forward pass that the backward pass runs again, first.
    pub again: BTreeSet<usize>,
    /// Whether the unit's input `hidden` is needed until its backward pass.
    pub keeps_input: bool,
}

/// Decides for each value that the backward pass reads whether it is saved or computed again.
/// `trains_weights`: whether weights of the unit's own are trained, not an adapter's alone.
pub fn retain(
    unit: &UnitGraph,
    backward: &Backward,
    policy: Recompute,
    trains_weights: bool,
) -> Retention {
    let mut maker = vec![None; unit.graph.values.len()];
    for (index, placed) in unit.nodes.iter().enumerate() {
        for &value in &placed.node.outputs {
            maker[value] = Some(index);
        }
    }
    let hidden = |value: ValueId| {
        let input = unit.graph.inputs.iter().find(|input| input.value == value);
        input.is_some_and(|input| matches!(input.source, Source::Previous(_)))
    };
    let of_tokens = |value: ValueId| unit.graph.values[value].shape.contains(&Dim::Tokens);
    let defined = |node: usize, property: fn(&OpDefinition) -> bool| {
        let node = &unit.nodes[node].node;
        op::definition(&node.op, node.version).is_some_and(property)
    };
    let keep = |node: usize| match (policy, unit.nodes[node].node.op.as_str()) {
        // It is read from its param again: a decoded weight is larger than the packed one.
        (_, "param_value") => false,
        (Recompute::None, _) => {
            !(trains_weights && defined(node, |op| op.recomputed_in_full_training))
        }
        (Recompute::Layer, _) => false,
        // A product of fixed matrices is as large as a weight.
        (Recompute::Selective, "matmul") => of_tokens(unit.nodes[node].node.outputs[0]),
        (Recompute::Selective, _) => defined(node, |op| op.kept_by_selective_recompute),
    };
    let mut retention = Retention::default();
    let mut wanted: Vec<ValueId> = backward
        .nodes
        .iter()
        .flat_map(|node| node.inputs.iter().copied())
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(value) = wanted.pop() {
        if !seen.insert(value) {
            continue;
        }
        match maker[value] {
            Some(node) if keep(node) => {
                retention.saved.insert(value);
            }
            Some(node) => {
                retention.again.insert(node);
                wanted.extend(&unit.nodes[node].node.inputs);
            }
            None => retention.keeps_input |= hidden(value),
        }
    }
    retention
}

#[cfg(test)]
mod tests;
