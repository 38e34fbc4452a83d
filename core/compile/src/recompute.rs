//! What a unit's backward pass reads -> what the forward pass saves and what is computed again.
//!
//! The results do not differ by a bit: what is saved is saved at the dtype in which it is read anyway, and what is computed
//! again is computed by the same kernels.

use std::collections::BTreeSet;

use espalier_interface::graph::{Source, ValueId};
use serde::{Deserialize, Serialize};

use crate::grad::Backward;
use crate::splice::UnitGraph;

/// Which activations are computed again in the backward pass. Never changes a bit of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    /// All activations are kept.
    #[default]
    None,
    /// The cheap ones are computed again.
    Selective,
    /// Only each layer's input is kept.
    Layer,
}

/// What the two passes of a unit do with the values of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Values that the forward pass leaves for the backward pass, beside the unit's input.
    pub saved: BTreeSet<ValueId>,
    /// Nodes of the forward pass that the backward pass begins with.
    pub again: BTreeSet<usize>,
    /// Whether the unit's input `hidden` must last until its backward pass.
    pub keeps_input: bool,
}

/// Decides for each value that the backward pass reads whether it is saved or computed again.
pub fn retain(unit: &UnitGraph, backward: &Backward, policy: Recompute) -> Retention {
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
    let keep = |node: usize| match policy {
        Recompute::None => true,
        Recompute::Layer => false,
        Recompute::Selective => {
            matches!(
                unit.nodes[node].node.op.as_str(),
                "linear" | "attention" | "embedding"
            )
        }
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
