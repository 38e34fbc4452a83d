//! What each policy saves and computes again.

use espalier_interface::DType;
use espalier_interface::graph::Graph;

use super::*;
use crate::grad::{InputGradient, differentiate};

/// Names of the ops whose outputs are saved and of those that are computed again, in the unit
/// `down(swiglu(gate(x), up(x)))` with `x = norm(hidden)` and trained weights.
fn retained(policy: Recompute, trains_weights: bool) -> [Vec<String>; 2] {
    let mut graph = Graph::new("unit");
    let source = Source::Previous("hidden".to_owned());
    let hidden = graph.input(source, [Dim::Tokens, Dim::Fixed(8)], DType::COMPUTE);
    let weight = graph.param("norm", [8]);
    let [gate, up, down] = ["gate", "up", "down"].map(|name| graph.param(name, [8, 8]));
    let x = op::rms_norm(&mut graph, hidden, weight, 1e-6);
    let gate = op::linear(&mut graph, x, gate, None);
    let up = op::linear(&mut graph, x, up, None);
    let product = op::swiglu(&mut graph, gate, up);
    let y = op::linear(&mut graph, product, down, None);
    graph.output("hidden", y);
    let mut unit = UnitGraph::alone(graph);
    let backward = differentiate(&mut unit, &[true; 4], InputGradient::Wanted);
    let backward = backward.expect("rules for all ops");
    let retention = retain(&unit, &backward, policy, trains_weights);
    let saved = unit.nodes.iter().enumerate().filter(|(_, placed)| {
        let mut made = placed.node.outputs.iter();
        made.any(|value| retention.saved.contains(value))
    });
    let saved: Vec<usize> = saved.map(|(index, _)| index).collect();
    let again: Vec<usize> = retention.again.into_iter().collect();
    [saved, again].map(|nodes| {
        let ops = nodes.into_iter().map(|index| &unit.nodes[index].node.op);
        ops.cloned().collect()
    })
}

#[test]
fn without_recompute_all_is_saved_but_a_gate_of_trained_weights() {
    let [saved, again] = retained(Recompute::None, false);
    assert_eq!(saved, ["rms_norm", "linear", "linear", "swiglu"]);
    assert_eq!(again, Vec::<String>::new());
    let [saved, again] = retained(Recompute::None, true);
    assert_eq!(saved, ["rms_norm", "linear", "linear"]);
    assert_eq!(again, ["swiglu"]);
}

#[test]
fn selective_recompute_saves_products_and_layers_save_nothing() {
    for trains_weights in [false, true] {
        let [saved, again] = retained(Recompute::Selective, trains_weights);
        assert_eq!(saved, ["linear", "linear"]);
        assert_eq!(again, ["rms_norm", "swiglu"]);
        let [saved, again] = retained(Recompute::Layer, trains_weights);
        assert_eq!(saved, Vec::<String>::new());
        assert_eq!(again, ["rms_norm", "linear", "linear", "swiglu"]);
    }
}
