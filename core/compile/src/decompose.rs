//! Calls of ops that a backend lacks -> calls of primitives that it has.
//!
//! It works on a unit's forward and backward pass after differentiation and before any value has a
//! place. Saved, recomputed and counted values follow from the resulting calls. A decomposition
//! computes in the reduce dtype and rounds where its op does.

mod backend_ops;
mod cross_entropy;
mod geglu_tanh;
mod gelu;
mod layer_norm;
mod linear;
mod parts;
mod rms_norm;
mod rope;
mod scale_channels;
mod swiglu;
mod table;

use std::collections::BTreeSet;

use espalier_interface::graph::Node;
use espalier_interface::op::DEFINITIONS;
use espalier_interface::{PluginError, Result};

use crate::grad::{Backward, GradNode, Target};
use crate::params::Dtypes;
use crate::splice::{Placed, UnitGraph};

pub use backend_ops::BackendOps;
use parts::{Parts, Whole};
use table::decomposition;

/// The ops of the interface that a backend lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// Those that run by their decomposition.
    pub decomposed: Vec<&'static str>,
    /// Those whose decomposition needs another op that the backend lacks, each with that op.
    pub unmade: Vec<[&'static str; 2]>,
    /// Those without a decomposition.
    pub missing: Vec<&'static str>,
}

impl Lacking {
    /// What a backend with `ops` lacks. Primitives are not counted: they are needed where an op is
    /// decomposed. Nor is `init`: where it is lacking the host draws. Nor are later versions: they
    /// are used where a backend has them, or where a run's config asks for them.
    pub fn of(ops: &BackendOps) -> Self {
        let mut lacking = Lacking::default();
        for op in DEFINITIONS {
            // The core puts a site's op in the place of `base`.
            let is_first = op.version == 1 && !op.fused;
            let needed = is_first && !op.primitive && !["base", "init"].contains(&op.name);
            if !needed || ops.has(op.name, op.version) {
                continue;
            }
            let Some(decomposition) = decomposition(op.name, op.version) else {
                lacking.missing.push(op.name);
                continue;
            };
            let mut parts = decomposition.parts.iter();
            match parts.find(|part| !ops.has(part, 1)) {
                Some(part) => lacking.unmade.push([op.name, part]),
                None => lacking.decomposed.push(op.name),
            }
        }
        lacking
    }
}

/// Replaces the calls of both passes that are not among `ops`. Adds the names of their ops to
/// `decomposed`.
///
/// # Errors
/// `UNSUPPORTED` for a missing op without a decomposition, or whose decomposition needs another
/// missing op. The message names op and backend and lists its ops.
pub fn decompose(
    unit: &mut UnitGraph,
    backward: &mut Backward,
    ops: &BackendOps,
    dtypes: Dtypes,
    decomposed: &mut BTreeSet<String>,
) -> Result<()> {
    if ops.has_all() {
        return Ok(());
    }
    let mut nodes = Vec::with_capacity(unit.nodes.len());
    for placed in std::mem::take(&mut unit.nodes) {
        let node = &placed.node;
        if ops.has(&node.op, node.version) {
            nodes.push(placed);
            continue;
        }
        let outputs: Vec<Target> = node.outputs.iter().copied().map(Target::Value).collect();
        let whole = Whole {
            op: &node.op,
            version: node.version,
            attributes: &node.attributes,
            inputs: &node.inputs,
            params: &node.params,
            outputs: &outputs,
        };
        for part in parts_of(unit, &whole, ops, dtypes)? {
            nodes.push(forward_node(part, &placed));
        }
        decomposed.insert(node.op.clone());
    }
    unit.nodes = nodes;
    let mut nodes = Vec::with_capacity(backward.nodes.len());
    for node in std::mem::take(&mut backward.nodes) {
        if ops.has(node.op, node.version) {
            nodes.push(node);
            continue;
        }
        let whole = Whole {
            op: node.op,
            version: node.version,
            attributes: &node.attributes,
            inputs: &node.inputs,
            params: &node.params,
            outputs: &node.outputs,
        };
        for part in parts_of(unit, &whole, ops, dtypes)? {
            nodes.push(GradNode {
                site: node.site.clone(),
                ..part
            });
        }
        decomposed.insert(node.op.to_owned());
    }
    backward.nodes = nodes;
    Ok(())
}

/// The parts of a call that the backend lacks.
fn parts_of(
    unit: &mut UnitGraph,
    whole: &Whole<'_>,
    ops: &BackendOps,
    dtypes: Dtypes,
) -> Result<Vec<GradNode>> {
    let Some(decomposition) = decomposition(whole.op, whole.version) else {
        return Err(ops.lacks(&format!("op `{}`", whole.op)));
    };
    let mut parts = Parts::new(&mut unit.graph, dtypes);
    (decomposition.decompose)(&mut parts, whole)?;
    let parts = parts.into_nodes();
    match parts.iter().find(|part| !ops.has(part.op, part.version)) {
        None => Ok(parts),
        Some(part) => Err(ops.lacks(&format!(
            "op `{}`, of which op `{}` would be made,",
            part.op, whole.op
        ))),
    }
}

/// A part of a forward node as a node itself.
fn forward_node(part: GradNode, placed: &Placed) -> Placed {
    let outputs = part.outputs.iter().map(|target| match target {
        Target::Value(value) | Target::Gradient(value) => *value,
    });
    Placed {
        node: Node {
            op: part.op.to_owned(),
            version: part.version,
            inputs: part.inputs,
            params: part.params,
            outputs: outputs.collect(),
            attributes: part.attributes,
        },
        dropout: None,
        site: placed.site.clone(),
    }
}

/// A decomposition that does not fit the call.
fn unfit(whole: &Whole<'_>, what: &str) -> PluginError {
    PluginError::invalid(format!("op `{}` cannot be decomposed: {what}", whole.op))
}

#[cfg(test)]
mod tests;
