//! Rotations that are dropped, and those that stay.

use espalier_interface::DType;
use espalier_interface::graph::Dim;
use espalier_interface::op;

use super::*;

/// `hidden` = the input rotated in short, then in long sequences of more than 16 tokens.
fn unit(scaling: f64) -> UnitGraph {
    let mut graph = Graph::new("unit");
    let rows = [Dim::Tokens, Dim::Fixed(8)];
    let x = graph.input(Source::Previous("hidden".into()), rows, DType::COMPUTE);
    let [short, long] = [LengthPositions::UpTo(16), LengthPositions::Beyond(16)]
        .map(|which| graph.batch(&which.name()));
    let turned = op::rope(&mut graph, x, short, 4, &[1.0, 0.1], 1.25);
    let turned = op::rope(&mut graph, turned, long, 4, &[0.5, 0.1], scaling);
    let hidden = op::add(&mut graph, turned, x, 1.0);
    graph.output("turned", turned);
    graph.output("hidden", hidden);
    UnitGraph::alone(graph)
}

fn ops(unit: &UnitGraph) -> Vec<&str> {
    unit.nodes.iter().map(|one| one.node.op.as_str()).collect()
}

#[test]
fn no_sequence_of_a_pass_is_long_and_its_rotation_goes() {
    let mut unit = unit(1.0);
    drop_unturned(&mut unit, 16);
    assert_eq!(ops(&unit), ["rope", "add"]);
    let first = unit.nodes[0].node.outputs[0];
    assert_eq!(unit.nodes[1].node.inputs[0], first);
    assert_eq!(unit.graph.outputs[0].value, first);
    assert_eq!(read(&unit.graph).count(), 2, "the tensors stay");
}

#[test]
fn a_rotation_that_may_change_something_stays() {
    for (scaling, longest) in [(1.0, 17), (0.5, 16)] {
        let mut unit = unit(scaling);
        drop_unturned(&mut unit, longest);
        assert_eq!(ops(&unit), ["rope", "rope", "add"]);
    }
}
