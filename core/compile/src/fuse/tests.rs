//! Which calls become fused ones, and which stay.

use espalier_interface::DType;
use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::op::{self, DEFINITIONS};

use super::*;
use crate::grad::{InputGradient, differentiate};

/// All ops of the interface but `hidden`.
fn without(hidden: &[&str]) -> BackendOps {
    let listed = DEFINITIONS.iter().map(|op| op.id());
    let listed = listed.filter(|op| !hidden.contains(&op.to_string().as_str()));
    BackendOps::new("half", Some(listed.collect()))
}

/// [`without`] calls of low-rank products, too.
fn apart(hidden: &[&str]) -> BackendOps {
    without(&[hidden, &["linear.4", "linear_input_backward.4"]].concat())
}

/// A unit of what `build` makes of its hidden state `[T, 8]`, a frozen weight and two trained ones.
fn unit(build: impl FnOnce(&mut Graph, ValueId, [usize; 3]) -> ValueId) -> UnitGraph {
    let mut graph = Graph::new("unit");
    let source = Source::Previous("hidden".to_owned());
    let x = graph.input(source, [Dim::Tokens, Dim::Fixed(8)], DType::COMPUTE);
    let params = [("w", [8, 8]), ("a", [2, 8]), ("b", [8, 2])];
    let params = params.map(|(name, shape)| graph.param(name, shape));
    let y = build(&mut graph, x, params);
    graph.output("hidden", y);
    assert_eq!(graph.validate(), Ok(()));
    UnitGraph::alone(graph)
}

/// `W x + alpha B A x`, as LoRA makes it.
fn adapted(alpha: f64) -> UnitGraph {
    unit(|graph, x, [w, a, b]| {
        let base = op::linear(graph, x, w, None);
        let narrow = op::linear(graph, x, a, None);
        let update = op::linear(graph, narrow, b, None);
        op::add(graph, base, update, alpha)
    })
}

/// The params that are trained.
const TRAINED: &[bool] = &[false, true, true];

/// The ops of both passes after fusing, with their numbers of inputs and `alpha`.
fn fused(unit: &mut UnitGraph, trained: &[bool], ops: &BackendOps) -> [Vec<String>; 2] {
    let made = differentiate(unit, trained, InputGradient::Wanted);
    let mut backward = made.expect("every op has a rule");
    fuse(unit, &mut backward, ops);
    fn shown(call: &impl Call) -> String {
        let (name, version) = call.op();
        let (inputs, alpha) = (call.inputs().len(), alpha(call));
        format!("{name}.{version}({inputs}) {alpha}")
    }
    [
        unit.nodes.iter().map(shown).collect(),
        backward.nodes.iter().map(shown).collect(),
    ]
}

#[test]
fn an_adapter_s_product_is_added_to_the_base_s() {
    let mut unit = adapted(2.0);
    let [forward, backward] = fused(&mut unit, TRAINED, &apart(&[]));
    assert_eq!(forward, ["linear.1(1) 1", "linear.1(1) 1", "linear.2(2) 2"]);
    assert_eq!(
        backward,
        [
            "linear_input_backward.3(2) 2",
            "linear_input_backward.3(2) 1",
            "linear_input_backward.2(2) 1",
        ]
    );
    let [_, backward] = fused(
        &mut adapted(2.0),
        TRAINED,
        &apart(&["linear_input_backward.3"]),
    );
    let each = [
        "linear_weight_backward.2(2) 2",
        "linear_input_backward.2(1) 2",
        "linear_weight_backward.1(2) 1",
        "linear_input_backward.1(1) 1",
        "linear_input_backward.2(2) 1",
    ];
    assert_eq!(backward, each);
    let last = &unit.nodes[2].node;
    assert_eq!(last.inputs[1], unit.nodes[0].node.outputs[0], "the base's");
    assert_eq!(last.outputs, [unit.graph.outputs[0].value]);
}

#[test]
fn a_factor_that_is_no_power_of_two_stays_a_pass_of_gradients() {
    let [forward, backward] = fused(&mut adapted(0.3), TRAINED, &apart(&[]));
    assert_eq!(forward[2], "linear.2(2) 0.3");
    assert_eq!(
        backward[..3],
        [
            "scale.1(1) 0.3",
            "linear_input_backward.3(2) 1",
            "linear_input_backward.3(2) 1"
        ]
    );
}

#[test]
fn a_backend_gets_what_it_lists() {
    let old = BackendOps::new("old", None);
    let fused_ops = DEFINITIONS.iter().filter(|op| op.fused);
    let names: Vec<String> = fused_ops.map(|op| op.id().to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let [listed, silent] =
        [without(&names), old].map(|ops| fused(&mut adapted(2.0), TRAINED, &ops));
    assert_eq!(listed, silent);
    assert_eq!(listed[0].len() + listed[1].len(), 4 + 7);
    let [forward, backward] = fused(
        &mut adapted(2.0),
        TRAINED,
        &apart(&[
            "linear_weight_backward.2",
            "linear.2",
            "linear_input_backward.3",
        ]),
    );
    assert_eq!(forward[3], "add.1(2) 2");
    assert_eq!(
        backward[0], "scale.1(1) 2",
        "an op that reads it lacks the factor"
    );
    assert_eq!(backward[5], "linear_input_backward.2(2) 1");
}

#[test]
fn what_is_read_elsewhere_stays() {
    // The product is read twice; then it is the sum's first summand, times another factor.
    let twice = |graph: &mut Graph, x, [w, ..]: [usize; 3]| {
        let product = op::linear(graph, x, w, None);
        let sum = op::add(graph, x, product, 1.0);
        op::add(graph, sum, product, 1.0)
    };
    let first = |graph: &mut Graph, x, [w, ..]: [usize; 3]| {
        let product = op::linear(graph, x, w, None);
        op::add(graph, product, x, 0.5)
    };
    let [forward, _] = fused(&mut unit(twice), TRAINED, &without(&[]));
    assert_eq!(forward, ["linear.1(1) 1", "add.1(2) 1", "add.1(2) 1"]);
    let [forward, _] = fused(&mut unit(first), TRAINED, &without(&[]));
    assert_eq!(forward, ["linear.1(1) 1", "add.1(2) 0.5"]);
    // A sum of either order is one product.
    let other = |graph: &mut Graph, x, [w, ..]: [usize; 3]| {
        let product = op::linear(graph, x, w, None);
        op::add(graph, product, x, 1.0)
    };
    let [forward, _] = fused(&mut unit(other), TRAINED, &without(&[]));
    assert_eq!(forward, ["linear.2(2) 1"]);
}

#[test]
fn the_gradient_of_a_norm_is_added_to_the_residual_s() {
    let normed = |graph: &mut Graph, x, [w, ..]: [usize; 3]| {
        let weight = graph.param("norm", [8]);
        let normal = op::rms_norm(graph, x, weight, 1e-5);
        let product = op::linear(graph, normal, w, None);
        op::add(graph, x, product, 1.0)
    };
    let of = |ops: &BackendOps| fused(&mut unit(normed), &[false; 4], ops);
    let [_, backward] = of(&without(&[]));
    let product = "linear_input_backward.1(1) 1";
    assert_eq!(backward, [product, "rms_norm_backward.2(3) 1"]);
    let [_, backward] = of(&without(&["rms_norm_backward.2"]));
    assert_eq!(
        backward,
        [product, "rms_norm_backward.1(2) 1", "add.1(2) 1"]
    );
}

/// A unit of rotations of two products, with `then` between the first rotation and the second.
fn rotated(then: fn(&mut Graph, ValueId, usize) -> ValueId, frequency: f32) -> UnitGraph {
    unit(|graph, x, [w, ..]| {
        let positions = graph.batch(espalier_interface::graph::batch::POSITIONS);
        let norm = graph.param("norm", [4]);
        let q = op::linear(graph, x, w, None);
        let q = op::rope(graph, q, positions, 4, &[1.0], 1.0);
        let k = op::linear(graph, x, w, None);
        let k = then(graph, k, norm);
        let k = op::rope(graph, k, positions, 4, &[frequency], 1.0);
        op::mul(graph, q, k)
    })
}

#[test]
fn rotations_by_the_same_angles_are_one() {
    let normed = |graph: &mut Graph, k, norm| op::rms_norm(graph, k, norm, 1e-5);
    let of = |unit: &mut UnitGraph, hidden: &[&str]| {
        let calls = fused(unit, &[false; 4], &without(hidden));
        calls.map(|calls| {
            calls
                .into_iter()
                .filter(|call| call.starts_with("rope"))
                .collect()
        })
    };
    let pair: [Vec<String>; 2] = of(&mut rotated(normed, 1.0), &[]);
    assert_eq!(pair, [["rope.2(3) 1"], ["rope_backward.2(3) 1"]]);
    let half = of(&mut rotated(normed, 1.0), &["rope.2"]);
    assert_eq!(half[0], ["rope.1(2) 1"; 2]);
    assert_eq!(half[1], ["rope_backward.2(3) 1"]);
    let apart = of(&mut rotated(normed, 0.5), &[]);
    assert_eq!(apart, [["rope.1(2) 1"; 2], ["rope_backward.1(2) 1"; 2]]);
}

#[test]
fn a_rotation_of_a_rotation_is_not_joined_with_it() {
    let of = |frequencies: [f32; 2]| {
        let mut unit = unit(|graph, x, _| {
            let positions = graph.batch(espalier_interface::graph::batch::POSITIONS);
            let mut rope = |x, at: usize| op::rope(graph, x, positions, 4, &[frequencies[at]], 1.0);
            let once = rope(x, 0);
            rope(once, 1)
        });
        fused(&mut unit, TRAINED, &without(&[]))[0].len()
    };
    assert_eq!([of([1.0, 1.0]), of([1.0, 0.5])], [2, 2]);
}

#[test]
fn a_residual_is_added_within_an_adapted_product() {
    let residual = |graph: &mut Graph, x, [w, a, b]: [usize; 3]| {
        let base = op::linear(graph, x, w, None);
        let narrow = op::linear(graph, x, a, None);
        let update = op::linear(graph, narrow, b, None);
        let y = op::add(graph, base, update, 0.3);
        op::add(graph, x, y, 1.0)
    };
    let of =
        |hidden: &[&str]| fused(&mut unit(residual), TRAINED, &apart(hidden)).map(|c| c.join(" "));
    let [forward, backward] = of(&[]);
    assert_eq!(forward, "linear.1(1) 1 linear.1(1) 1 linear.3(3) 0.3");
    let [other, same] = of(&["linear.3"]);
    assert_eq!(
        other,
        "linear.1(1) 1 linear.1(1) 1 linear.2(2) 0.3 add.1(2) 1"
    );
    assert_eq!(backward, same);
    let mut unit = unit(residual);
    fused(&mut unit, TRAINED, &apart(&[]));
    let last = &unit.nodes[2].node;
    let (x, base) = (unit.graph.inputs[0].value, unit.nodes[0].node.outputs[0]);
    assert_eq!(last.inputs[1..], [base, x]);
    assert_eq!(last.outputs, [unit.graph.outputs[0].value]);
}

/// Ops, inputs and params of both passes of a unit, after fusing all.
fn whole(unit: &mut UnitGraph) -> [Vec<String>; 2] {
    let made = differentiate(unit, TRAINED, InputGradient::Wanted);
    let mut backward = made.expect("every op has a rule");
    fuse(unit, &mut backward, &without(&[]));
    let forward = unit.nodes.iter().map(|placed| {
        let node = &placed.node;
        format!(
            "{}.{} {:?} {:?}",
            node.op, node.version, node.inputs, node.params
        )
    });
    let forward = forward.collect();
    let backward = backward.nodes.iter().map(|node| {
        let read = format!("{:?} {:?}", node.inputs, node.params);
        format!(
            "{}.{} {read} {:?} {}",
            node.op,
            node.version,
            node.outputs,
            alpha(node)
        )
    });
    [forward, backward.collect()]
}

#[test]
fn an_adapted_product_is_one_call_with_its_low_rank_one() {
    // Values: x 0, base 1, narrow 2, update 3, y 4, then gradients; params: w 0, a 1, b 2.
    let [forward, backward] = whole(&mut adapted(2.0));
    assert_eq!(forward, ["linear.1 [0] [1]", "linear.4 [0, 2] [0, 2]"]);
    let of_b = "linear_input_backward.3 [5, 2] [2] [Value(7), Gradient(2)] 2";
    let of_x = "linear_input_backward.4 [5, 7, 0] [0, 1] [Value(10), Gradient(1)] 1";
    assert_eq!(backward, [of_b, of_x]);
    let biased = |residual: bool| {
        unit(move |graph, x, [w, a, b]| {
            let bias = graph.param("bias", [8]);
            let base = op::linear(graph, x, w, Some(bias));
            let narrow = op::linear(graph, x, a, None);
            let update = op::linear(graph, narrow, b, None);
            let y = op::add(graph, base, update, 0.3);
            if residual {
                op::add(graph, x, y, 1.0)
            } else {
                y
            }
        })
    };
    let [forward, _] = fused(&mut biased(true), &[false; 4], &without(&[]));
    assert_eq!(forward, ["linear.1(1) 1", "linear.4(3) 0.3"]);
    let mut unit = biased(false);
    fused(&mut unit, &[false; 4], &without(&[]));
    let last = &unit.nodes[1].node;
    assert_eq!(
        (&last.inputs[..], &last.params[..]),
        (&[0, 2][..], &[0, 2, 3][..])
    );
}

#[test]
fn a_product_that_is_read_elsewhere_stays_apart_from_its_adapter() {
    let twice = |graph: &mut Graph, x, [w, a, b]: [usize; 3]| {
        let base = op::linear(graph, x, w, None);
        let narrow = op::linear(graph, x, a, None);
        let update = op::linear(graph, narrow, b, None);
        let y = op::add(graph, base, update, 1.0);
        op::mul(graph, y, base)
    };
    let [forward, _] = fused(&mut unit(twice), TRAINED, &without(&[]));
    let product = "linear.1(1) 1";
    assert_eq!(forward, [product, product, "linear.2(2) 1", "mul.1(2) 1"]);
}

#[test]
fn gradients_of_a_weight_that_is_used_twice_are_added_in_order() {
    let twice = |graph: &mut Graph, x, [w, ..]: [usize; 3]| {
        let once = op::linear(graph, x, w, None);
        op::linear(graph, once, w, None)
    };
    let [_, backward] = fused(&mut unit(twice), &[true, false, false], &without(&[]));
    assert_eq!(backward, ["linear_input_backward.3(2) 1"; 2]);
    let mut unit = unit(twice);
    let made = differentiate(&mut unit, &[true, false, false], InputGradient::Wanted);
    let mut nodes = made.expect("every op has a rule").nodes;
    // Another gradient of the same weight stands between the first two.
    nodes.swap(1, 2);
    pairs::gradients(&mut nodes);
    let versions: Vec<u32> = nodes.iter().map(|node| node.version).collect();
    assert_eq!(versions, [1, 1, 3]);
}
