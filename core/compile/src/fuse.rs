//! Products and gradients of norms, and sums and multiples of their results alone; rotations by the
//! same angles; both gradients of a product; a product and its adapter's; a gradient in the memory
//! of logits -> fused calls, where a backend lists them.
//!
//! It works on a unit's forward and backward pass after differentiation: graphs and gradient rules
//! know nothing of it. A fused call has the bits of the calls that it stands for, so that only time
//! and memory depend on it.

mod adapted;
mod pairs;

use std::collections::HashMap;

use espalier_interface::graph::{Attributes, ValueId};
use espalier_interface::op::is_power_of_two;

use crate::decompose::BackendOps;
use crate::grad::{Backward, GradNode, Target};
use crate::splice::{Placed, UnitGraph};

/// The first fused version of an op.
const FUSED: u32 = 2;
/// Sums that are added to a further value, a residual.
const RESIDUAL: SumFold = SumFold {
    op: "linear",
    inputs: 2,
    version: 3,
};
/// The ops that read a gradient of `linear`'s output, first among their inputs, and take a factor.
const OF_DY: [&str; 2] = ["linear_input_backward", "linear_weight_backward"];

/// Fuses calls of both passes into those that the backend lists. One that lists nothing is older
/// than they are.
pub fn fuse(unit: &mut UnitGraph, backward: &mut Backward, ops: &BackendOps) {
    fold_scales(unit, backward, ops);
    let uses = uses(unit, backward);
    let forward = [SumFold::into("linear", 1), RESIDUAL];
    let gradients = [
        SumFold::into("linear_input_backward", 1),
        SumFold::into("rms_norm_backward", 2),
    ];
    for fold in forward.iter().filter(|fold| fold.is_listed(ops)) {
        unit.nodes = fold.sums(std::mem::take(&mut unit.nodes), &uses);
    }
    for fold in gradients.iter().filter(|fold| fold.is_listed(ops)) {
        backward.nodes = fold.sums(std::mem::take(&mut backward.nodes), &uses);
    }
    if ops.lists("rope", FUSED) {
        unit.nodes = pairs::rotations(std::mem::take(&mut unit.nodes), "rope");
    }
    if ops.lists("rope_backward", FUSED) {
        let nodes = std::mem::take(&mut backward.nodes);
        backward.nodes = pairs::rotations(nodes, "rope_backward");
    }
    if ops.lists("cross_entropy_backward", FUSED) {
        let nodes = backward.nodes.iter_mut();
        nodes
            .filter(|node| node.op() == ("cross_entropy_backward", 1))
            .for_each(|node| node.version = FUSED);
    }
    if ops.lists("linear_input_backward", pairs::GRADIENTS) {
        pairs::gradients(&mut backward.nodes);
    }
    if ops.lists("linear", adapted::ADAPTED) {
        adapted::products(unit, &uses);
    }
    if ops.lists("linear_input_backward", adapted::ADAPTED) {
        adapted::gradients(&unit.graph, &mut backward.nodes, &uses);
    }
}

/// How often each value is read in both passes or from outside.
fn uses(unit: &UnitGraph, backward: &Backward) -> Vec<usize> {
    let forward = unit.nodes.iter().flat_map(|placed| &placed.node.inputs);
    let gradients = backward.nodes.iter().flat_map(|node| &node.inputs);
    let outputs = unit.graph.outputs.iter().map(|output| &output.value);
    let ends = backward.seed.iter().chain(&backward.input);
    let mut uses = vec![0; unit.graph.values.len()];
    for &value in forward.chain(gradients).chain(outputs).chain(ends) {
        uses[value] += 1;
    }
    uses
}

/// A call of either pass.
trait Call {
    /// Name and version of its op.
    fn op(&self) -> (&str, u32);
    fn inputs(&self) -> &[ValueId];
    fn attributes(&self) -> &Attributes;
    /// Its first output, where that is a value.
    fn made(&self) -> Option<ValueId>;
    /// Whether it makes one of `values`.
    fn makes(&self, values: &[ValueId]) -> bool;
    /// Both calls as one, the fused op, with the results of both.
    fn with(self, other: Self, inputs: Vec<ValueId>) -> Self;
    /// Whether `alpha` times its result may be added by the fused op.
    fn takes(&self, alpha: f64) -> bool;
    /// It as `version` of its op, which adds `alpha` times its result to `added`, in the place of
    /// `sum`.
    fn added_to(self, added: ValueId, alpha: f64, sum: Self, version: u32) -> Self;
}

impl Call for Placed {
    fn op(&self) -> (&str, u32) {
        (&self.node.op, self.node.version)
    }

    fn inputs(&self) -> &[ValueId] {
        &self.node.inputs
    }

    fn attributes(&self) -> &Attributes {
        &self.node.attributes
    }

    fn made(&self) -> Option<ValueId> {
        self.node.outputs.first().copied()
    }

    fn makes(&self, values: &[ValueId]) -> bool {
        self.node.outputs.iter().any(|made| values.contains(made))
    }

    fn with(mut self, other: Self, inputs: Vec<ValueId>) -> Self {
        self.node.version = FUSED;
        self.node.inputs = inputs;
        self.node.outputs.extend(other.node.outputs);
        self
    }

    fn takes(&self, alpha: f64) -> bool {
        self.node.version == 1 || alpha == 1.0
    }

    fn added_to(mut self, added: ValueId, alpha: f64, sum: Self, version: u32) -> Self {
        self.node.version = version;
        self.node.inputs.push(added);
        self.node.outputs = sum.node.outputs;
        if alpha != 1.0 {
            self.node.attributes = self.node.attributes.with("alpha", alpha);
        }
        self
    }
}

impl Call for GradNode {
    fn op(&self) -> (&str, u32) {
        (self.op, self.version)
    }

    fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn made(&self) -> Option<ValueId> {
        match self.outputs.first() {
            Some(Target::Value(value)) => Some(*value),
            _ => None,
        }
    }

    fn makes(&self, values: &[ValueId]) -> bool {
        let mut outputs = self.outputs.iter();
        outputs.any(|made| matches!(made, Target::Value(value) if values.contains(value)))
    }

    fn with(mut self, other: Self, inputs: Vec<ValueId>) -> Self {
        self.version = FUSED;
        self.inputs = inputs;
        self.outputs.extend(other.outputs);
        self
    }

    fn takes(&self, alpha: f64) -> bool {
        alpha == 1.0
    }

    fn added_to(mut self, added: ValueId, _: f64, sum: Self, version: u32) -> Self {
        self.version = version;
        self.inputs.push(added);
        self.outputs = sum.outputs;
        self
    }
}

/// The factor of an `add` or a fused op.
fn alpha(call: &impl Call) -> f64 {
    call.attributes().optional_number("alpha").unwrap_or(1.0)
}

/// An op whose results are added to other values by another version of it.
struct SumFold {
    op: &'static str,
    /// Its inputs before there is one that it is added to.
    inputs: usize,
    /// The version that adds.
    version: u32,
}

impl SumFold {
    /// Sums of `op`, which has so many inputs, into its first fused version.
    fn into(op: &'static str, inputs: usize) -> Self {
        SumFold {
            op,
            inputs,
            version: FUSED,
        }
    }

    fn is_listed(&self, ops: &BackendOps) -> bool {
        ops.lists(self.op, self.version)
    }

    /// Replaces each `add` of a result of the op that nothing else reads by the version that adds.
    fn sums<C: Call>(&self, calls: Vec<C>, uses: &[usize]) -> Vec<C> {
        let mut done: Vec<Option<C>> = Vec::with_capacity(calls.len());
        let mut makers: HashMap<ValueId, usize> = HashMap::new();
        for call in calls {
            let found = self.summand(&call, &done, &makers, uses);
            let call = match found {
                Some((at, added)) => {
                    let summand = done[at].take().expect("it was found there");
                    summand.added_to(added, alpha(&call), call, self.version)
                }
                None => call,
            };
            makers.extend(call.made().map(|value| (value, done.len())));
            done.push(Some(call));
        }
        done.into_iter().flatten().collect()
    }

    /// The place of the call that `sum` may be folded into, and what that is added to.
    fn summand<C: Call>(
        &self,
        sum: &C,
        done: &[Option<C>],
        makers: &HashMap<ValueId, usize>,
        uses: &[usize],
    ) -> Option<(usize, ValueId)> {
        let (("add", 1), &[a, b]) = (sum.op(), sum.inputs()) else {
            return None;
        };
        let alpha = alpha(sum);
        let of = |result: ValueId, added: ValueId| {
            let at = *makers.get(&result)?;
            let call = done[at].as_ref()?;
            let alone = uses[result] == 1 && result != added;
            let is_of_op = call.op().0 == self.op && call.inputs().len() == self.inputs;
            (alone && is_of_op && call.takes(alpha)).then_some((at, added))
        };
        // A sum is the same the other way round.
        of(b, a).or_else(|| of(a, b).filter(|_| alpha == 1.0))
    }
}

/// Moves each `scale` of a gradient by a power of two into the ops of `linear`'s gradients, where
/// they alone read its result.
fn fold_scales(unit: &UnitGraph, backward: &mut Backward, ops: &BackendOps) {
    let uses = uses(unit, backward);
    let mut at = 0;
    while at < backward.nodes.len() {
        match scaled(&backward.nodes, at, &uses, ops) {
            Some(scaled) => {
                let scale = backward.nodes.remove(at);
                for node in &mut backward.nodes {
                    if node.inputs.first() == Some(&scaled) {
                        let factor = alpha(&scale) * alpha(&*node);
                        node.version = FUSED;
                        node.inputs[0] = scale.inputs[0];
                        node.attributes = node.attributes.clone().with("alpha", factor);
                    }
                }
            }
            None => at += 1,
        }
    }
}

/// The result of the `scale` at `at`, where the ops that read it can take its factor.
fn scaled(nodes: &[GradNode], at: usize, uses: &[usize], ops: &BackendOps) -> Option<ValueId> {
    let scale = &nodes[at];
    let (("scale", 1), Some(result)) = (scale.op(), scale.made()) else {
        return None;
    };
    let takes = |node: &&GradNode| {
        let [first, others @ ..] = &node.inputs[..] else {
            return false;
        };
        let reads = *first == result && !others.contains(&result);
        let fused = OF_DY.contains(&node.op) && ops.lists(node.op, FUSED);
        reads && fused && is_power_of_two(alpha(scale) * alpha(*node))
    };
    let readers = nodes.iter().filter(takes).count();
    let folds = is_power_of_two(alpha(scale)) && readers > 0 && readers == uses[result];
    folds.then_some(result)
}

#[cfg(test)]
mod tests;
