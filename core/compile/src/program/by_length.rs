//! The positions by length that units read: their tensors, and rotations that turn nothing.

use std::collections::{BTreeSet, HashMap};

use espalier_interface::graph::batch::LengthPositions;
use espalier_interface::graph::{Graph, Source, ValueId};

use super::draft::Draft;
use crate::splice::UnitGraph;

/// The tensors of positions by length that the units read, in order.
pub(super) fn tensors(drafts: &[Draft]) -> Vec<LengthPositions> {
    let inputs = drafts.iter().flat_map(|draft| read(&draft.unit.graph));
    let tensors: BTreeSet<LengthPositions> = inputs.map(|(_, which)| which).collect();
    tensors.into_iter().collect()
}

/// Drops the rotations by positions of sequences beyond `longest` tokens, the most that a pass can
/// have: every position is 0, and a value is what it was. The inputs stay, so that all programs of
/// a run have the same tensors.
pub(super) fn drop_unturned(unit: &mut UnitGraph, longest: u64) {
    let never = |which: LengthPositions| matches!(which, LengthPositions::Beyond(limit) if longest <= limit);
    let zeros: BTreeSet<ValueId> = read(&unit.graph)
        .filter_map(|(value, which)| never(which).then_some(value))
        .collect();
    if zeros.is_empty() {
        return;
    }
    let mut same: HashMap<ValueId, ValueId> = HashMap::new();
    unit.nodes.retain_mut(|placed| {
        let node = &mut placed.node;
        for input in &mut node.inputs {
            *input = same.get(input).copied().unwrap_or(*input);
        }
        let is_rotation = node.op == "rope" && node.version == 1 && zeros.contains(&node.inputs[1]);
        let turns_nothing = is_rotation && node.attributes.number("scaling") == Ok(1.0);
        if turns_nothing {
            same.insert(node.outputs[0], node.inputs[0]);
        }
        !turns_nothing
    });
    for output in &mut unit.graph.outputs {
        output.value = same.get(&output.value).copied().unwrap_or(output.value);
    }
}

/// The inputs of `graph` that are positions by length.
fn read(graph: &Graph) -> impl Iterator<Item = (ValueId, LengthPositions)> + '_ {
    graph.inputs.iter().filter_map(|input| match &input.source {
        Source::Batch(name) => LengthPositions::of_name(name).map(|which| (input.value, which)),
        Source::Previous(_) => None,
    })
}

#[cfg(test)]
mod tests;
