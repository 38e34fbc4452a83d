//! Calls of ops that a backend lacks -> calls of primitives that it has.
//!
//! It works on a unit's forward and backward pass after differentiation and before any value has a
//! place. Saved, recomputed and counted values follow from the resulting calls. A decomposition
//! computes in the reduce dtype and rounds where its op does.

mod backend_ops;
mod cross_entropy;
mod parts;
mod rms_norm;
mod rope;
mod scale_channels;
mod swiglu;

use std::collections::BTreeSet;

use espalier_interface::graph::Node;
use espalier_interface::op::DEFINITIONS;
use espalier_interface::{PluginError, Result};

use crate::grad::{Backward, GradNode, Target};
use crate::params::Dtypes;
use crate::splice::{Placed, UnitGraph};

pub use backend_ops::BackendOps;
use parts::{Parts, Whole};

/// Appends the parts of a call.
type Decompose = fn(&mut Parts<'_>, &Whole<'_>) -> Result<()>;

/// The ops that have a decomposition, by name.
const DECOMPOSITIONS: &[(&str, Decompose)] = &[
    ("cross_entropy", cross_entropy::forward),
    ("cross_entropy_backward", cross_entropy::backward),
    ("rms_norm", rms_norm::forward),
    ("rms_norm_backward", rms_norm::backward),
    ("rms_norm_weight_backward", rms_norm::weight_backward),
    ("rope", rope::forward),
    ("rope_backward", rope::backward),
    ("scale_channels", scale_channels::forward),
    (
        "scale_channels_weight_backward",
        scale_channels::weight_backward,
    ),
    ("swiglu", swiglu::forward),
    ("swiglu_backward", swiglu::backward),
];

fn decomposition(op: &str) -> Option<Decompose> {
    let found = DECOMPOSITIONS.iter().find(|(name, _)| *name == op);
    found.map(|(_, decompose)| *decompose)
}

/// The ops of the interface that a backend lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// Those that run by their decomposition, if the backend has its primitives.
    pub decomposed: Vec<&'static str>,
    /// Those without a decomposition.
    pub missing: Vec<&'static str>,
}

impl Lacking {
    /// What a backend with `ops` lacks. Primitives are not counted: they are needed where an op is
    /// decomposed.
    pub fn of(ops: &BackendOps) -> Self {
        let mut lacking = Lacking::default();
        for op in DEFINITIONS {
            // The core puts a site's op in the place of `base`.
            if ops.has(op.name, op.version) || op.primitive || op.name == "base" {
                continue;
            }
            match decomposition(op.name) {
                Some(_) => lacking.decomposed.push(op.name),
                None => lacking.missing.push(op.name),
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
        if ops.has(node.op, 1) {
            nodes.push(node);
            continue;
        }
        let whole = Whole {
            op: node.op,
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
    let Some(decompose) = decomposition(whole.op) else {
        return Err(ops.lacks(&format!("op `{}`", whole.op)));
    };
    let mut parts = Parts::new(&mut unit.graph, dtypes);
    decompose(&mut parts, whole)?;
    let parts = parts.into_nodes();
    match parts.iter().find(|part| !ops.has(part.op, 1)) {
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
            version: 1,
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
