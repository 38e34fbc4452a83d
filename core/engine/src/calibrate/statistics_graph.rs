//! A unit's graph and the sites with statistics -> the part of the graph that their inputs need,
//! with the Gram matrices as further values.

use espalier_compile::splice::site_of;
use espalier_interface::DType;
use espalier_interface::calibration::Statistic;
use espalier_interface::graph::{Attributes, Dim, Graph, Node, ValueId, ValueType};
use espalier_interface::model::Unit;

use super::SiteToPack;

/// An input of one or several sites, of which statistics are taken once.
pub struct SharedInput {
    /// The value, `[T, M]`.
    pub value: ValueId,
    /// `M`.
    pub channels: u64,
    /// `sum x x^T` of what ran since it was last zero, `[M, M]` in the reduce dtype.
    pub gram: Option<ValueId>,
    /// All statistics that its sites ask for, each once.
    pub statistics: Vec<Statistic>,
    /// The params of the sites that it is the input of.
    pub params: Vec<usize>,
}

/// A graph that computes statistics.
pub struct StatisticsGraph {
    /// The nodes that are needed, and products for the Gram matrices.
    pub graph: Graph,
    /// The inputs of the sites with statistics.
    pub inputs: Vec<SharedInput>,
}

impl StatisticsGraph {
    /// The graph of `unit` for the statistics that `sites` ask for. Without `is_last` it also
    /// computes what the unit passes on.
    pub fn of(graph: &Graph, unit: &Unit, sites: &[&SiteToPack<'_>], is_last: bool) -> Self {
        let mut inputs: Vec<SharedInput> = Vec::new();
        for node in &graph.nodes {
            if node.op != "linear" || site_of(graph, unit, node).is_none() {
                continue;
            }
            let param = unit.params[node.params[0]];
            let site = sites.iter().find(|site| site.param == param);
            let Some(calibration) = site.and_then(|site| site.calibration.as_ref()) else {
                continue;
            };
            let value = node.inputs[0];
            let at = inputs.iter().position(|input| input.value == value);
            let at = at.unwrap_or_else(|| {
                inputs.push(SharedInput {
                    value,
                    channels: graph.params[node.params[0]].shape[1],
                    gram: None,
                    statistics: Vec::new(),
                    params: Vec::new(),
                });
                inputs.len() - 1
            });
            let input = &mut inputs[at];
            input.params.push(param);
            for &statistic in &calibration.statistics {
                if !input.statistics.contains(&statistic) {
                    input.statistics.push(statistic);
                }
            }
        }
        let mut needed: Vec<ValueId> = inputs.iter().map(|input| input.value).collect();
        let outputs = if is_last {
            Vec::new()
        } else {
            graph.outputs.clone()
        };
        needed.extend(outputs.iter().map(|output| output.value));
        let mut graph = Graph {
            outputs,
            ..needed_part(graph, needed)
        };
        for input in &mut inputs {
            let wants = |one: &Statistic| matches!(one, Statistic::Gram { .. });
            if input.statistics.iter().any(wants) {
                input.gram = Some(append_gram(&mut graph, input));
            }
        }
        StatisticsGraph { graph, inputs }
    }
}

/// The nodes and inputs of `graph` that the values `needed` follow from.
fn needed_part(graph: &Graph, needed: Vec<ValueId>) -> Graph {
    let mut is_needed = vec![false; graph.values.len()];
    needed.into_iter().for_each(|value| is_needed[value] = true);
    let mut nodes: Vec<Node> = Vec::new();
    for node in graph.nodes.iter().rev() {
        if node.outputs.iter().any(|&value| is_needed[value]) {
            node.inputs
                .iter()
                .for_each(|&value| is_needed[value] = true);
            nodes.push(node.clone());
        }
    }
    nodes.reverse();
    let inputs = graph.inputs.iter();
    let inputs = inputs.filter(|input| is_needed[input.value]).cloned();
    Graph {
        inputs: inputs.collect(),
        nodes,
        ..graph.clone()
    }
}

/// Adds `x^T x`, which is the gradient of a weight whose outputs' gradients are its inputs.
fn append_gram(graph: &mut Graph, input: &SharedInput) -> ValueId {
    let ty = ValueType {
        shape: vec![Dim::Fixed(input.channels); 2],
        dtype: DType::REDUCE,
    };
    let x = [input.value, input.value];
    let op = "linear_weight_backward";
    graph.node(op, &x, &[], vec![ty], Attributes::new())
}

#[cfg(test)]
mod tests {
    use espalier_interface::graph::{Source, batch};
    use espalier_interface::model::UnitKind;
    use espalier_interface::op;

    use super::*;

    #[test]
    fn only_what_the_inputs_need_is_kept_and_shared_inputs_count_once() {
        let mut graph = Graph::new("g");
        let shape = [Dim::Tokens, Dim::Fixed(4)];
        let hidden = Source::Previous("hidden".to_owned());
        let x = graph.input(hidden, shape, DType::COMPUTE);
        graph.batch(batch::LABELS);
        let weights = ["a.weight", "b.weight", "c.weight"].map(|name| graph.param(name, [4, 4]));
        let a = op::linear(&mut graph, x, weights[0], None);
        let b = op::linear(&mut graph, x, weights[1], None);
        let sum = op::add(&mut graph, a, b, 1.0);
        let c = op::linear(&mut graph, sum, weights[2], None);
        graph.output("hidden", c);
        let unit = Unit {
            name: "u".to_owned(),
            kind: UnitKind::Layer,
            graph: 0,
            prefix: String::new(),
            params: vec![5, 6, 7],
        };
        let none = StatisticsGraph::of(&graph, &unit, &[], true);
        assert!(none.inputs.is_empty() && none.graph.nodes.is_empty());
        let all = StatisticsGraph::of(&graph, &unit, &[], false);
        assert_eq!((all.graph.nodes.len(), all.graph.inputs.len()), (4, 1));
    }
}
