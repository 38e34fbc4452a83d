//! A unit's graph -> the nodes of its backward pass: one rule per op, and no nodes for what is
//! frozen.

mod rule;

use espalier_interface::graph::{Attributes, Graph, ParamId, Source, ValueId, ValueType};
use espalier_interface::{PluginError, Result};

use crate::splice::{Placed, UnitGraph};

/// Where a backward node puts a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A value.
    Value(ValueId),
    /// Added to the gradient of a local param.
    Gradient(ParamId),
}

/// A node of the backward pass.
#[derive(Clone, Debug)]
pub struct GradNode {
    /// Name of the op.
    pub op: &'static str,
    /// Version of the op.
    pub version: u32,
    /// Values read: values of the forward pass and gradients.
    pub inputs: Vec<ValueId>,
    /// Local params read.
    pub params: Vec<ParamId>,
    /// Results.
    pub outputs: Vec<Target>,
    /// Attributes.
    pub attributes: Attributes,
    /// The number of a dropout, which selects its mask.
    pub dropout: Option<u64>,
    /// The site it belongs to, for error messages.
    pub site: Option<String>,
}

/// The backward pass of a unit. Its values follow those of the forward pass in the same list.
#[derive(Clone, Debug, Default)]
pub struct Backward {
    /// Nodes in order.
    pub nodes: Vec<GradNode>,
    /// The gradient of the unit's output `hidden`, an input of the pass; a head has none.
    pub seed: Option<ValueId>,
    /// The gradient of the unit's input `hidden`, where an earlier unit needs it.
    pub input: Option<ValueId>,
}

/// Whether a unit must compute the gradient of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputGradient {
    /// Units before it have trainable params.
    Wanted,
    /// Units before it have no trainable params.
    NotNeeded,
}

/// The input that the unit before provides, if any.
pub fn hidden_input(graph: &Graph) -> Option<ValueId> {
    let previous = |source: &Source| matches!(source, Source::Previous(_));
    graph
        .inputs
        .iter()
        .find(|input| previous(&input.source))
        .map(|input| input.value)
}

/// The output called `name`, if any.
pub fn output(graph: &Graph, name: &str) -> Option<ValueId> {
    graph
        .outputs
        .iter()
        .find(|output| output.name == name)
        .map(|output| output.value)
}

/// Differentiates a unit. `trainable` says for each local param whether its gradient is needed.
///
/// # Errors
/// `UNSUPPORTED` for an op without a backward rule on a path that needs one.
pub fn differentiate(
    unit: &mut UnitGraph,
    trainable: &[bool],
    input_gradient: InputGradient,
) -> Result<Backward> {
    let mut needs = vec![false; unit.graph.values.len()];
    let hidden = hidden_input(&unit.graph);
    if let (Some(hidden), InputGradient::Wanted) = (hidden, input_gradient) {
        needs[hidden] = true;
    }
    for placed in &unit.nodes {
        let node = &placed.node;
        let needed = !rule::is_constant(&node.op)
            && (node.inputs.iter().any(|&value| needs[value])
                || node.params.iter().any(|&param| trainable[param]));
        for &value in &node.outputs {
            needs[value] = needed && unit.graph.values[value].dtype.is_float();
        }
    }
    let mut tape = Tape {
        values: &mut unit.graph.values,
        needs,
        trainable,
        grads: Vec::new(),
        nodes: Vec::new(),
    };
    tape.grads = vec![None; tape.values.len()];
    let mut backward = Backward::default();
    if let Some(last) = unit
        .graph
        .outputs
        .iter()
        .find(|output| output.name == "hidden")
    {
        if !tape.needs[last.value] {
            return Ok(backward);
        }
        let seed = tape.like(last.value);
        tape.grads[last.value] = Some(seed);
        backward.seed = Some(seed);
    }
    for placed in unit.nodes.iter().rev() {
        if placed.node.outputs.iter().any(|&value| tape.needs[value]) {
            rule::apply(&mut tape, placed)?;
        }
    }
    backward.input = hidden.and_then(|hidden| tape.grads[hidden]);
    backward.nodes = tape.nodes;
    Ok(backward)
}

/// The backward pass under construction.
struct Tape<'a> {
    values: &'a mut Vec<ValueType>,
    /// For each forward value, whether its gradient is needed.
    needs: Vec<bool>,
    trainable: &'a [bool],
    /// For each value, the sum of the gradients that have arrived so far.
    grads: Vec<Option<ValueId>>,
    nodes: Vec<GradNode>,
}

impl Tape<'_> {
    /// A new value of the type of `value`.
    fn like(&mut self, value: ValueId) -> ValueId {
        let ty = self.values[value].clone();
        self.values.push(ty);
        self.grads.push(None);
        self.needs.push(false);
        self.values.len() - 1
    }

    /// The gradient of a node's first output, if one has arrived.
    fn arrived(&self, placed: &Placed) -> Option<ValueId> {
        self.grads[placed.node.outputs[0]]
    }

    /// Adds `gradient` to the gradient of `value`.
    fn arrive(&mut self, value: ValueId, gradient: ValueId, placed: &Placed) {
        match self.grads[value] {
            None => self.grads[value] = Some(gradient),
            Some(before) => {
                let sum = self.like(value);
                self.emit(
                    placed,
                    "add",
                    vec![before, gradient],
                    vec![],
                    vec![Target::Value(sum)],
                    Attributes::new().with("alpha", 1.0),
                );
                self.grads[value] = Some(sum);
            }
        }
    }

    fn emit(
        &mut self,
        placed: &Placed,
        op: &'static str,
        inputs: Vec<ValueId>,
        params: Vec<ParamId>,
        outputs: Vec<Target>,
        attributes: Attributes,
    ) {
        let (dropout, site) = (placed.dropout, placed.site.clone());
        self.nodes.push(GradNode {
            op,
            version: 1,
            inputs,
            params,
            outputs,
            attributes,
            dropout,
            site,
        });
    }

    /// Emits an op with one result, and adds the result to the gradient of `value`.
    fn chain(
        &mut self,
        placed: &Placed,
        op: &'static str,
        value: ValueId,
        inputs: Vec<ValueId>,
        params: Vec<ParamId>,
        attributes: Attributes,
    ) {
        let made = self.like(value);
        self.emit(
            placed,
            op,
            inputs,
            params,
            vec![Target::Value(made)],
            attributes,
        );
        self.arrive(value, made, placed);
    }
}

/// The error for an op that cannot be differentiated.
fn no_rule(op: &str) -> PluginError {
    PluginError::unsupported(format!("op `{op}` has no backward rule in this version"))
}

#[cfg(test)]
mod tests;
