//! The backward rules of functions of one number, `y = f(x)`: `dx = dy f'(x)`, of products and
//! sums.

use espalier_interface::graph::{Attributes, ValueId};

use super::Rule;
use crate::grad::{Tape, Target};
use crate::splice::Placed;

/// The rules by op.
pub(super) const RULES: &[(&str, Rule)] = &[
    ("exp", Rule::Chained(exp)),
    ("log", Rule::Chained(log)),
    ("rsqrt", Rule::Chained(rsqrt)),
    ("sigmoid", Rule::Chained(sigmoid)),
    ("tanh", Rule::Chained(tanh)),
];

/// `dx = dy y`.
fn exp(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let [x, y] = operands(placed);
    tape.chain(placed, "mul", x, vec![dy, y], vec![], Attributes::new());
}

/// `dx = dy / x`.
fn log(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let [x, _] = operands(placed);
    tape.chain(placed, "div", x, vec![dy, x], vec![], Attributes::new());
}

/// `dx = -alpha / 2 dy y^3`.
fn rsqrt(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let [x, y] = operands(placed);
    let cube = (0..3).fold(dy, |product, _| times(tape, placed, product, y));
    let alpha = placed.node.attributes.optional_number("alpha");
    let half = Attributes::new().with("alpha", -0.5 * alpha.unwrap_or(1.0));
    tape.chain(placed, "scale", x, vec![cube], vec![], half);
}

/// `dx = dy y - (dy y) y`.
fn sigmoid(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let [x, y] = operands(placed);
    let product = times(tape, placed, dy, y);
    let square = times(tape, placed, product, y);
    let inputs = vec![product, square];
    tape.chain(placed, "add", x, inputs, vec![], minus());
}

/// `dx = dy - (dy y) y`.
fn tanh(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let [x, y] = operands(placed);
    let product = times(tape, placed, dy, y);
    let square = times(tape, placed, product, y);
    tape.chain(placed, "add", x, vec![dy, square], vec![], minus());
}

/// The argument and the result.
fn operands(placed: &Placed) -> [ValueId; 2] {
    [placed.node.inputs[0], placed.node.outputs[0]]
}

/// The attributes of `a - b`.
fn minus() -> Attributes {
    Attributes::new().with("alpha", -1.0)
}

/// `a b`, a value like `a`.
fn times(tape: &mut Tape<'_>, placed: &Placed, a: ValueId, b: ValueId) -> ValueId {
    let made = tape.like(a);
    let target = vec![Target::Value(made)];
    tape.emit(placed, "mul", vec![a, b], vec![], target, Attributes::new());
    made
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use espalier_interface::DType;
    use espalier_interface::graph::{Dim, Graph, Source};

    use super::*;
    use crate::grad::{InputGradient, differentiate};
    use crate::splice::UnitGraph;

    type Function = (&'static str, fn(f64) -> f64);

    const FUNCTIONS: &[Function] = &[
        ("exp", f64::exp),
        ("log", f64::ln),
        ("rsqrt", |x| 1.0 / (0.25 * x + 1.5).sqrt()),
        ("sigmoid", |x| 1.0 / (1.0 + (-x).exp())),
        ("tanh", f64::tanh),
    ];

    /// `dy f'(x)` by the nodes of the backward pass, for one number.
    fn by_rule((op, function): Function, x: f64, dy: f64) -> f64 {
        let mut graph = Graph::new(op);
        let source = Source::Previous("hidden".to_owned());
        let input = graph.input(source, [Dim::Tokens, Dim::Fixed(1)], DType::COMPUTE);
        let ty = graph.type_of(input).clone();
        let attributes = Attributes::new().with("alpha", 0.25).with("beta", 1.5);
        let output = graph.node(op, &[input], &[], vec![ty], attributes);
        graph.output("hidden", output);
        let placed = |node| Placed {
            node,
            dropout: None,
            site: None,
        };
        let nodes = std::mem::take(&mut graph.nodes).into_iter().map(placed);
        let mut unit = UnitGraph {
            nodes: nodes.collect(),
            graph,
            params: Vec::new(),
        };
        let backward = differentiate(&mut unit, &[], InputGradient::Wanted).expect("a rule");
        let seed = backward.seed.expect("the output is needed");
        let mut known = HashMap::from([(input, x), (output, function(x)), (seed, dy)]);
        for node in &backward.nodes {
            let [a, b] = [0, 1].map(|at| node.inputs.get(at).map_or(0.0, |value| known[value]));
            let alpha = node.attributes.optional_number("alpha").unwrap_or(1.0);
            let made = match node.op {
                "mul" => a * b,
                "div" => a / b,
                "add" => a + alpha * b,
                "scale" => alpha * a,
                other => panic!("{op}: {other} is no product, quotient or sum"),
            };
            let [Target::Value(target)] = node.outputs[..] else {
                panic!("{op}: one value a node")
            };
            known.insert(target, made);
        }
        known[&backward.input.expect("the input needs a gradient")]
    }

    #[test]
    fn every_rule_is_the_derivative() {
        assert_eq!(FUNCTIONS.len(), RULES.len());
        for (function @ (name, f), x) in FUNCTIONS.iter().flat_map(|&f| [(f, 0.3), (f, 1.7)]) {
            let slope = (f(x + 1e-5) - f(x - 1e-5)) / 2e-5;
            let found = by_rule(function, x, -1.25);
            assert!(
                (found + 1.25 * slope).abs() < 1e-7,
                "{name} at {x}: {found}, {slope}"
            );
        }
    }
}
