//! The check of a graph: indices in range, single assignment, and every known op's operands, shapes
//! and dtypes.

use super::definition;
use super::definition::OpCall;
use crate::graph::{Graph, Node};
use crate::{PluginError, Result};

impl Graph {
    /// Checks that every index is in range and every value is made once and before it is read.
    /// Every op that the interface knows must have the operands, attributes, shapes and dtypes of
    /// its definition.
    ///
    /// # Errors
    /// `INVALID`, naming the graph, the node, the operand, what was expected and what was found.
    pub fn validate(&self) -> Result<()> {
        let mut made = vec![false; self.values.len()];
        for input in &self.inputs {
            match made.get_mut(input.value) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return self.fail(format!("value {} is two inputs", input.value)),
                None => return self.fail(format!("input value {} does not exist", input.value)),
            }
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let checked = self
                .check_indices(node, &mut made)
                .and_then(|()| self.check_op(node));
            checked.or_else(|error| self.fail(format!("node {index}: {}", error.message)))?;
        }
        let is_made = |value: usize| made.get(value).copied().unwrap_or(false);
        match self.outputs.iter().find(|output| !is_made(output.value)) {
            None => Ok(()),
            Some(output) => self.fail(format!("output `{}` is never made", output.name)),
        }
    }

    fn fail(&self, what: String) -> Result<()> {
        let name = &self.name;
        Err(PluginError::invalid(format!("graph `{name}`: {what}")))
    }

    /// Checks that what `node` reads was made, and marks what it makes.
    fn check_indices(&self, node: &Node, made: &mut [bool]) -> Result<()> {
        let op = &node.op;
        let fail = |what: String| Err(PluginError::invalid(format!("op `{op}` {what}")));
        if node.outputs.is_empty() {
            return fail("makes no value".to_owned());
        }
        for &value in &node.inputs {
            if !made.get(value).copied().unwrap_or(false) {
                return fail(format!("reads value {value} before it is made"));
            }
        }
        for &param in &node.params {
            if param >= self.params.len() {
                return fail(format!("reads param {param}, which does not exist"));
            }
        }
        for &value in &node.outputs {
            match made.get_mut(value) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return fail(format!("makes value {value} a second time")),
                None => return fail(format!("makes value {value}, which has no type")),
            }
        }
        Ok(())
    }

    /// Checks a node's operands, attributes and types. An op that the interface does not know may
    /// be a backend's own.
    fn check_op(&self, node: &Node) -> Result<()> {
        let Some(definition) = definition(&node.op, node.version) else {
            return Ok(());
        };
        if definition.changes_its_outputs() {
            return Err(PluginError::invalid(format!(
                "op `{}` changes what its outputs held before, which the values of a graph do not: \
                 only the core uses it",
                node.op
            )));
        }
        if definition.fused {
            return Err(PluginError::invalid(format!(
                "version {} of op `{}` stands for several calls: only the core makes it of them",
                node.version, node.op
            )));
        }
        OpCall::of_node(definition, self, node).check()
    }
}

#[cfg(test)]
mod tests;
