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
    UnitGraph::alone(graph)
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

/// A sum of two slices of one value: their gradients are made in one value, the second in the
/// memory of the first.
#[test]
fn gradients_of_slices_are_added_to_those_of_others() {
    let mut graph = Graph::new("sliced");
    let source = Source::Previous("hidden".to_owned());
    let x = graph.input(source, [Dim::Tokens, Dim::Fixed(6)], DType::COMPUTE);
    let first = op::slice_columns(&mut graph, x, 0, 2);
    let last = op::slice_columns(&mut graph, x, 3, 2);
    let sum = op::add(&mut graph, first, last, 1.0);
    graph.output("hidden", sum);
    assert_eq!(graph.validate(), Ok(()));
    let mut unit = UnitGraph::alone(graph);
    let backward = differentiate(&mut unit, &[], InputGradient::Wanted);
    let backward = backward.expect("every op has a rule");
    let op = "slice_columns_backward";
    assert_eq!(ops(&backward), [op, op]);
    let nodes = &backward.nodes;
    assert_eq!([nodes[0].inputs.len(), nodes[1].inputs.len()], [1, 2]);
    assert_eq!(nodes[0].outputs, [Target::Value(nodes[1].inputs[1])]);
    assert_eq!(
        nodes[1].outputs,
        [Target::Value(backward.input.expect("wanted"))]
    );
}

/// The ops of the backward pass of a layer norm with a weight and a bias, and GELU.
fn of_normed(trainable: [bool; 2]) -> Vec<String> {
    let mut graph = Graph::new("normed");
    let source = Source::Previous("hidden".to_owned());
    let x = graph.input(source, [Dim::Tokens, Dim::Fixed(4)], DType::COMPUTE);
    let (weight, bias) = (graph.param("n.weight", [4]), graph.param("n.bias", [4]));
    let normed = op::layer_norm(&mut graph, x, weight, Some(bias), 1e-5);
    let y = op::gelu(&mut graph, normed, op::GeluForm::Exact);
    graph.output("hidden", y);
    assert_eq!(graph.validate(), Ok(()));
    let backward = differentiate(
        &mut UnitGraph::alone(graph),
        &trainable,
        InputGradient::NotNeeded,
    );
    let backward = backward.expect("every op has a rule");
    ops(&backward).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_layer_norm_s_weight_and_bias_have_gradients_of_their_own() {
    assert_eq!(of_normed([false, false]), [""; 0]);
    let gelu = "gelu_backward";
    assert_eq!(of_normed([false, true]), [gelu, "bias_backward"]);
    let of_weight = "layer_norm_weight_backward";
    assert_eq!(of_normed([true, false]), [gelu, of_weight]);
    let both = [gelu, of_weight, "bias_backward"];
    assert_eq!(of_normed([true, true]), both);
}

#[test]
fn an_op_without_a_rule_is_named() {
    let mut unit = residual();
    unit.nodes[0].node.op = "sort".to_owned();
    let error = differentiate(&mut unit, &[true], InputGradient::NotNeeded);
    assert!(error.expect_err("no rule").message.contains("`sort`"));
}

/// `hidden = x * (m / norms)`, with the norms of an updated weight.
fn scaled_by_norms() -> UnitGraph {
    let mut graph = Graph::new("scaled");
    let source = Source::Previous("hidden".to_owned());
    let x = graph.input(source, [Dim::Tokens, Dim::Fixed(4)], DType::COMPUTE);
    let [weight, a, b, m] = [
        ("w", vec![4, 3]),
        ("a", vec![2, 3]),
        ("b", vec![4, 2]),
        ("m", vec![4]),
    ]
    .map(|(name, shape)| graph.param(name, shape));
    let norms = op::adapted_row_norms(&mut graph, weight, a, b, 0.5);
    let m = op::param_value(&mut graph, m, DType::REDUCE);
    let factors = op::div(&mut graph, m, norms);
    let out = op::scale_by(&mut graph, x, factors);
    graph.output("hidden", out);
    UnitGraph::alone(graph)
}

#[test]
fn norms_of_an_adapted_weight_are_constants() {
    let trained = [false, true, true, true];
    let backward = differentiate(&mut scaled_by_norms(), &trained, InputGradient::Wanted);
    let backward = backward.expect("every op has a rule");
    let expected = [
        "scale_by_backward",
        "scale_by",
        "div",
        "param_value_backward",
    ];
    assert_eq!(ops(&backward), expected);
    assert_eq!(backward.nodes[3].outputs, [Target::Gradient(3)]);
}

/// Matrices by value, each `[rows, cols]` and its numbers.
type Matrices = Vec<Option<([usize; 2], Vec<f64>)>>;

fn product(values: &Matrices, node: (&[ValueId], &Attributes)) -> ([usize; 2], Vec<f64>) {
    let side = |at: usize, flag: &str| {
        let (size, numbers) = values[node.0[at]].clone().expect("made before");
        if !node.1.flag(flag) {
            return (size, numbers);
        }
        let [rows, cols] = size;
        let turned = (0..rows * cols).map(|at| numbers[at % rows * cols + at / rows]);
        ([cols, rows], turned.collect())
    };
    let (([n, k], a), ([depth, m], b)) = (side(0, "transpose_a"), side(1, "transpose_b"));
    assert_eq!(k, depth, "the sides do not fit");
    let element = |at: usize| (0..k).map(|i| a[at / m * k + i] * b[i * m + at % m]).sum();
    ([n, m], (0..n * m).map(element).collect())
}

#[test]
fn products_of_values_have_the_gradients_of_the_differences() {
    let numbers = |n: usize, seed: usize| -> Vec<f64> {
        (0..n)
            .map(|at| ((at * 7 + seed * 5) % 11) as f64 / 4.0 - 1.2)
            .collect()
    };
    for (read_a, read_b) in [
        (op::Read::Plain, op::Read::Plain),
        (op::Read::Plain, op::Read::Transposed),
        (op::Read::Transposed, op::Read::Plain),
        (op::Read::Transposed, op::Read::Transposed),
    ] {
        let stored = |[rows, cols]: [u64; 2], read| match read {
            op::Read::Plain => [rows, cols],
            op::Read::Transposed => [cols, rows],
        };
        let mut graph = Graph::new("product");
        let [a, b] = [("a", stored([2, 3], read_a)), ("b", stored([3, 4], read_b))]
            .map(|(name, shape)| graph.param(name, shape));
        let [a, b] = [a, b].map(|param| op::param_value(&mut graph, param, DType::COMPUTE));
        let out = op::matmul(&mut graph, a, read_a, b, read_b);
        graph.output("hidden", out);
        let mut unit = UnitGraph::alone(graph);
        let backward = differentiate(&mut unit, &[true, true], InputGradient::NotNeeded);
        let backward = backward.expect("every op has a rule");
        let forward = unit.nodes[2].node.clone();
        let size = |value: ValueId| [0, 1].map(|axis| unit.graph.fixed(value, axis) as usize);
        let mut values: Matrices = vec![None; unit.graph.values.len()];
        for (value, seed) in [(a, 1), (b, 2)] {
            let [rows, cols] = size(value);
            values[value] = Some(([rows, cols], numbers(rows * cols, seed)));
        }
        let dy = numbers(8, 3);
        values[backward.seed.expect("a gradient arrives")] = Some(([2, 4], dy.clone()));
        let mut gradients = vec![Vec::new(); 2];
        for node in &backward.nodes {
            match node.outputs[0] {
                Target::Value(value) => {
                    values[value] = Some(product(&values, (&node.inputs, &node.attributes)));
                }
                Target::Gradient(param) => {
                    gradients[param] = values[node.inputs[0]].clone().expect("made before").1;
                }
            }
        }
        for (param, value) in [a, b].into_iter().enumerate() {
            for (at, &found) in gradients[param].iter().enumerate() {
                let moved = |step: f64| {
                    let mut values = values.clone();
                    values[value].as_mut().expect("given").1[at] += step;
                    let (_, y) = product(&values, (&forward.inputs, &forward.attributes));
                    y.iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
                };
                let expected = moved(0.5) - moved(-0.5);
                assert!(
                    (found - expected).abs() < 1e-12,
                    "{read_a:?} {read_b:?}: {found}"
                );
            }
        }
    }
}
