//! A layer's graph -> the params that make the layer an identity where they are zero.
//!
//! A layer adds what it computes to its input: `x + f(x)`. Where each `f` ends in a product, a zero
//! weight (and bias) of that product gives `x + 0`, exactly. The weights still get gradients.

use espalier_interface::graph::{Graph, Node, ParamId, ValueId};
use espalier_interface::{PluginError, Result};

use crate::grad::{hidden_input, output};

/// The local params of a layer that make its output equal its input where all of them are zero: the
/// weights and biases of the products that it adds to its input.
///
/// # Errors
/// `UNSUPPORTED`, naming the op, for a layer that is not its input plus results of products.
///
/// # Source
/// LLaMA Pro (arXiv 2401.02415), section 3.2, for Llama's `o_proj` and `down_proj`; derived here
/// for any graph.
pub fn identity_params(graph: &Graph) -> Result<Vec<ParamId>> {
    let (Some(input), Some(output)) = (hidden_input(graph), output(graph, "hidden")) else {
        return Err(unsupported(graph, "it passes no hidden states on"));
    };
    let layer = Layer { graph, input };
    let mut zeros = Vec::new();
    let mut value = output;
    while value != input {
        let Some(node) = layer.producer(value).filter(|node| node.op == "add") else {
            return Err(unsupported(graph, "its output is not a sum with its input"));
        };
        let [first, second] = node.inputs[..] else {
            return Err(unsupported(graph, "an `add` has other than two operands"));
        };
        // `first + alpha * second`: the second one counts as it is only where alpha is 1.
        let whole = node.attributes.optional_number("alpha").unwrap_or(1.0) == 1.0;
        let (before, added) = match layer.is_sum_with_input(first) {
            true => (first, second),
            false if whole => (second, first),
            false => return Err(unsupported(graph, "it adds a multiple of its input")),
        };
        layer.zeroed(added, &mut zeros)?;
        value = before;
    }
    zeros.sort_unstable();
    zeros.dedup();
    Ok(zeros)
}

/// A layer and the value of its input.
struct Layer<'a> {
    graph: &'a Graph,
    input: ValueId,
}

impl Layer<'_> {
    /// The node that writes `value`; none for an input.
    fn producer(&self, value: ValueId) -> Option<&Node> {
        let mut nodes = self.graph.nodes.iter();
        nodes.find(|node| node.outputs.contains(&value))
    }

    /// Whether `value` is the input, or the input with something added.
    fn is_sum_with_input(&self, value: ValueId) -> bool {
        value == self.input
            || self.producer(value).is_some_and(|node| {
                node.op == "add" && node.inputs.iter().any(|&one| self.is_sum_with_input(one))
            })
    }

    /// Adds to `zeros` the params that make `value` zero.
    fn zeroed(&self, value: ValueId, zeros: &mut Vec<ParamId>) -> Result<()> {
        let Some(node) = self.producer(value) else {
            return Err(unsupported(
                self.graph,
                "it adds an input that has no weight",
            ));
        };
        match node.op.as_str() {
            "linear" => zeros.extend(&node.params),
            "add" | "scale" | "cast" => {
                for &input in &node.inputs {
                    self.zeroed(input, zeros)?;
                }
            }
            op => {
                let what = format!("it adds the result of `{op}`, which no zero weight makes zero");
                return Err(unsupported(self.graph, &what));
            }
        }
        Ok(())
    }
}

fn unsupported(graph: &Graph, what: &str) -> PluginError {
    PluginError::unsupported(format!(
        "graph `{}` cannot be made an identity: {what}",
        graph.name
    ))
}

#[cfg(test)]
mod tests {
    use espalier_interface::graph::{Dim, Source};
    use espalier_interface::{DType, op};

    use super::*;

    /// A layer of width 4, and its input.
    fn layer() -> (Graph, ValueId) {
        let mut graph = Graph::new("layer");
        let shape = [Dim::Tokens, Dim::Fixed(4)];
        let source = Source::Previous("hidden".to_owned());
        let input = graph.input(source, shape, DType::COMPUTE);
        (graph, input)
    }

    fn product(graph: &mut Graph, x: ValueId, name: &str) -> ValueId {
        let weight = graph.param(&format!("{name}.weight"), [4, 4]);
        let bias = graph.param(&format!("{name}.bias"), [4]);
        op::linear(graph, x, weight, Some(bias))
    }

    fn names(graph: &Graph) -> Result<Vec<&str>> {
        let params = identity_params(graph)?.into_iter();
        Ok(params
            .map(|param| graph.params[param].name.as_str())
            .collect())
    }

    #[test]
    fn products_added_one_after_the_other_and_side_by_side_are_found() {
        for side_by_side in [false, true] {
            let (mut graph, input) = layer();
            let norm = graph.param("norm.weight", [4]);
            let normed = op::rms_norm(&mut graph, input, norm, 1e-5);
            let inner = product(&mut graph, normed, "a.in");
            let added = product(&mut graph, inner, "a.out");
            let hidden = op::add(&mut graph, input, added, 1.0);
            let from = if side_by_side { normed } else { hidden };
            let inner = product(&mut graph, from, "b.in");
            let added = product(&mut graph, inner, "b.out");
            // The sum may be written in the other order.
            let hidden = op::add(&mut graph, added, hidden, 1.0);
            graph.output("hidden", hidden);
            let expected = ["a.out.weight", "a.out.bias", "b.out.weight", "b.out.bias"];
            assert_eq!(names(&graph).expect("an identity"), expected);
        }
    }

    #[test]
    fn layers_without_an_identity_are_refused_by_name() {
        let (mut graph, input) = layer();
        let replaced = product(&mut graph, input, "a");
        graph.output("hidden", replaced);
        let refused = names(&graph).expect_err("no sum").message;
        assert!(refused.contains("not a sum with its input"), "{refused}");

        let (mut graph, input) = layer();
        let inner = product(&mut graph, input, "a");
        let norm = graph.param("norm.weight", [4]);
        let normed = op::rms_norm(&mut graph, inner, norm, 1e-5);
        let hidden = op::add(&mut graph, input, normed, 1.0);
        graph.output("hidden", hidden);
        let refused = names(&graph).expect_err("a norm").message;
        assert!(
            refused.contains("`layer`") && refused.contains("`rms_norm`"),
            "{refused}"
        );
    }
}
