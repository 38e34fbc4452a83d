//! What a backward pass holds, and what it leaves out.

use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::{DType, op};

use super::*;

/// `hidden = x + W x`, with a gate that nothing reads.
fn residual() -> UnitGraph {
    let mut graph = Graph::new("residual");
    let source = Source::Previous("hidden".to_owned());
    let x = graph.input(source, [Dim::Tokens, Dim::Fixed(4)], DType::COMPUTE);
    let weight = graph.param("w.weight", [4, 4]);
    let y = op::linear(&mut graph, x, weight, None);
    let sum = op::add(&mut graph, x, y, 1.0);
    graph.output("hidden", sum);
    let nodes = std::mem::take(&mut graph.nodes);
    let placed = |node| Placed {
        node,
        dropout: None,
        site: None,
    };
    UnitGraph {
        graph,
        nodes: nodes.into_iter().map(placed).collect(),
        params: vec![0],
    }
}

fn ops(backward: &Backward) -> Vec<&str> {
    backward.nodes.iter().map(|node| node.op).collect()
}

#[test]
fn nothing_trained_means_no_backward_pass() {
    let backward = differentiate(&mut residual(), &[false], InputGradient::NotNeeded);
    let backward = backward.expect("every op has a rule");
    assert!(backward.nodes.is_empty() && backward.seed.is_none() && backward.input.is_none());
}

#[test]
fn a_frozen_weight_gets_no_gradient_and_both_branches_meet() {
    let backward = differentiate(&mut residual(), &[false], InputGradient::Wanted);
    let backward = backward.expect("every op has a rule");
    assert_eq!(ops(&backward), ["linear_input_backward", "add"]);
    assert!(backward.input.is_some());
}

#[test]
fn the_first_trained_unit_passes_nothing_further_back() {
    let backward = differentiate(&mut residual(), &[true], InputGradient::NotNeeded);
    let backward = backward.expect("every op has a rule");
    assert_eq!(ops(&backward), ["linear_weight_backward"]);
    assert_eq!(backward.nodes[0].outputs, [Target::Gradient(0)]);
    assert!(backward.input.is_none());
}

#[test]
fn an_op_without_a_rule_is_named() {
    let mut unit = residual();
    unit.nodes[0].node.op = "sort".to_owned();
    let error = differentiate(&mut unit, &[true], InputGradient::NotNeeded);
    assert!(error.expect_err("no rule").message.contains("`sort`"));
}
