//! Factors that depend on the compute dtype -> numbers, before anything else reads them.

use espalier_interface::op::with_rounded_factor;
use espalier_interface::{DType, Result};

use crate::grad::Backward;
use crate::params::Dtypes;
use crate::splice::UnitGraph;

/// Rounds the factors of both passes that ask for it to the dtype of what they scale.
///
/// # Errors
/// `INVALID` for a factor that is missing.
pub fn round(unit: &mut UnitGraph, backward: &mut Backward, dtypes: Dtypes) -> Result<()> {
    let values = &unit.graph.values;
    let dtype = |inputs: &[usize]| match inputs.first() {
        Some(&value) => dtypes.resolve(values[value].dtype),
        None => DType::F32,
    };
    for node in unit.nodes.iter_mut().map(|placed| &mut placed.node) {
        if node.op == "scale"
            && let Some(rounded) = with_rounded_factor(&node.attributes, dtype(&node.inputs))?
        {
            node.attributes = rounded;
        }
    }
    for node in &mut backward.nodes {
        if node.op == "scale"
            && let Some(rounded) = with_rounded_factor(&node.attributes, dtype(&node.inputs))?
        {
            node.attributes = rounded;
        }
    }
    Ok(())
}
