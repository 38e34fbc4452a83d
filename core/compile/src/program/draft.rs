//! A unit before its values have places: its graph, its backward pass, and the calls of both
//! passes.

use espalier_interface::graph::{Attributes, Dim, ValueId};
use espalier_interface::model::UnitKind;
use espalier_interface::{DType, PluginError, Result};

use super::value_location::Extent;
use crate::grad::{self, Backward, Target};
use crate::params::Dtypes;
use crate::recompute::Retention;
use crate::splice::UnitGraph;

/// A unit before its values have places.
pub(super) struct Draft {
    pub unit: UnitGraph,
    pub backward: Backward,
    pub retention: Retention,
    /// Values that last from launch to launch: caches of keys and values.
    pub caches: Vec<ValueId>,
    pub kind: UnitKind,
    pub name: String,
}

/// What a forward and a backward node have in common.
pub(super) struct Call<'a> {
    pub op: &'a str,
    pub version: u32,
    pub attributes: &'a Attributes,
    pub inputs: &'a [ValueId],
    pub params: &'a [usize],
    pub outputs: Vec<Target>,
    pub dropout: Option<u64>,
    pub site: Option<&'a String>,
}

impl Draft {
    /// The calls of the forward pass.
    pub fn forward_calls(&self) -> Vec<Call<'_>> {
        (0..self.unit.nodes.len())
            .map(|index| self.forward_call(index))
            .collect()
    }

    /// The calls of the backward pass: recomputed values, then the gradients.
    pub fn backward_calls(&self) -> Vec<Call<'_>> {
        let again = self
            .retention
            .again
            .iter()
            .map(|&index| self.forward_call(index));
        again
            .chain((0..self.backward.nodes.len()).map(|i| self.backward_call(i)))
            .collect()
    }

    fn forward_call(&self, index: usize) -> Call<'_> {
        let placed = &self.unit.nodes[index];
        Call {
            op: &placed.node.op,
            version: placed.node.version,
            attributes: &placed.node.attributes,
            inputs: &placed.node.inputs,
            params: &placed.node.params,
            outputs: placed
                .node
                .outputs
                .iter()
                .map(|&value| Target::Value(value))
                .collect(),
            dropout: placed.dropout,
            site: placed.site.as_ref(),
        }
    }

    fn backward_call(&self, index: usize) -> Call<'_> {
        let node = &self.backward.nodes[index];
        Call {
            op: node.op,
            version: node.version,
            attributes: &node.attributes,
            inputs: &node.inputs,
            params: &node.params,
            outputs: node.outputs.clone(),
            dropout: node.dropout,
            site: node.site.as_ref(),
        }
    }

    /// The unit's output `hidden`.
    ///
    /// # Errors
    /// `INVALID` for a unit without one.
    pub fn hidden(&self) -> Result<ValueId> {
        grad::output(&self.unit.graph, "hidden").ok_or_else(|| {
            PluginError::invalid(format!("unit `{}` has no output `hidden`", self.name))
        })
    }

    /// The dtype of `value` in this run.
    pub fn dtype(&self, value: ValueId, dtypes: Dtypes) -> DType {
        dtypes.resolve(self.unit.graph.values[value].dtype)
    }

    /// The size of `value`; at most one of its extents may vary.
    ///
    /// # Errors
    /// `INVALID` for a shape with several varying extents, or with boundaries of anything but i32.
    pub fn extent(&self, value: ValueId, dtypes: Dtypes) -> Result<Extent> {
        let bytes = self.dtype(value, dtypes).bytes();
        let shape = &self.unit.graph.values[value].shape;
        let fixed: u64 = shape
            .iter()
            .map(|dim| {
                if let Dim::Fixed(extent) = dim {
                    *extent
                } else {
                    1
                }
            })
            .product();
        let varying: Vec<_> = shape
            .iter()
            .filter(|dim| !matches!(dim, Dim::Fixed(_)))
            .collect();
        match varying.as_slice() {
            [] => Ok(Extent::Fixed(fixed * bytes)),
            [Dim::Tokens] => Ok(Extent::PerToken(fixed * bytes)),
            [Dim::Boundaries] if fixed == 1 && bytes == DType::I32.bytes() => {
                Ok(Extent::Boundaries)
            }
            _ => Err(PluginError::invalid(format!(
                "unit `{}`: a value of shape {shape:?} has no linear size",
                self.name
            ))),
        }
    }
}
