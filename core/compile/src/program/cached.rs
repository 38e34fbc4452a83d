//! A unit's graph -> its graph for generating text: attention over a cache, and only the nodes that
//! the outputs need.

use std::collections::HashSet;

use espalier_interface::graph::{Dim, ValueId, ValueType, batch};
use espalier_interface::{DType, PluginError, Result};

use crate::splice::UnitGraph;

/// The shape of a cache of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Sequences held at once.
    pub slots: u64,
    /// Most tokens of a slot.
    pub capacity: u64,
}

/// Turns every `attention` of `unit` into `attention_cached` and drops the nodes that no output of
/// `outputs` needs. Returns the caches of keys and values, each `[slots, capacity, J K]`.
///
/// # Errors
/// `UNSUPPORTED` for attention that is not causal, and for a graph that reads the log-sum-exp of
/// attention.
pub(super) fn cache(
    unit: &mut UnitGraph,
    shape: CacheShape,
    outputs: &[&str],
) -> Result<Vec<ValueId>> {
    unit.graph
        .outputs
        .retain(|output| outputs.contains(&output.name.as_str()));
    prune(unit);
    let positions = unit.graph.batch(batch::POSITIONS);
    let sequences = unit.graph.batch(batch::SEQUENCES);
    let (graph, nodes) = (&mut unit.graph, &mut unit.nodes);
    let read: HashSet<ValueId> = nodes
        .iter()
        .flat_map(|placed| placed.node.inputs.iter().copied())
        .collect();
    let mut caches = Vec::new();
    for placed in nodes.iter_mut().filter(|p| p.node.op == "attention") {
        let node = &mut placed.node;
        if !node.attributes.flag("causal") {
            return Err(PluginError::unsupported(
                "a model whose attention sees later tokens does not generate",
            ));
        }
        if node.outputs[1..].iter().any(|value| read.contains(value)) {
            return Err(PluginError::unsupported(
                "attention over a cache gives no log-sum-exp, and the graph reads it",
            ));
        }
        node.op = "attention_cached".to_owned();
        node.inputs.extend([positions, sequences]);
        node.outputs.truncate(1);
        for input in [1, 2] {
            let width = graph.values[node.inputs[input]].shape[1];
            let [slots, capacity] = [shape.slots, shape.capacity].map(Dim::Fixed);
            graph.values.push(ValueType {
                shape: vec![slots, capacity, width],
                dtype: DType::COMPUTE,
            });
            let value = graph.values.len() - 1;
            node.outputs.push(value);
            caches.push(value);
        }
    }
    Ok(caches)
}

/// Drops the nodes whose results no output needs.
fn prune(unit: &mut UnitGraph) {
    let outputs = unit.graph.outputs.iter();
    let mut needed: HashSet<ValueId> = outputs.map(|output| output.value).collect();
    let mut kept = Vec::with_capacity(unit.nodes.len());
    for placed in unit.nodes.drain(..).rev() {
        if placed
            .node
            .outputs
            .iter()
            .any(|value| needed.contains(value))
        {
            needed.extend(&placed.node.inputs);
            kept.push(placed);
        }
    }
    kept.reverse();
    unit.nodes = kept;
}

#[cfg(test)]
mod tests;
