//! Which outputs take the memory of an input.

use espalier_interface::DType;
use espalier_interface::graph::{Graph, Source};
use espalier_interface::model::UnitKind;
use espalier_interface::op::DEFINITIONS;

use super::*;
use crate::decompose::BackendOps;
use crate::fuse::fuse;
use crate::grad::Backward;
use crate::program::HEAD_CHUNK_BYTES;
use crate::recompute::{Recompute, Retention};
use crate::splice::UnitGraph;

/// The unit `swiglu(W x + V x, last)`, fused; `last` is one of the products or the sum.
fn draft(last: usize) -> Draft {
    let mut graph = Graph::new("unit");
    let source = Source::Previous("hidden".to_owned());
    let x = graph.input(source, [Dim::Tokens, Dim::Fixed(8)], DType::COMPUTE);
    let [w, v] = ["w", "v"].map(|name| graph.param(name, [8, 8]));
    let base = op::linear(&mut graph, x, w, None);
    let update = op::linear(&mut graph, x, v, None);
    let sum = op::add(&mut graph, base, update, 1.0);
    let out = op::swiglu(&mut graph, sum, [base, sum][last]);
    graph.output("hidden", out);
    let mut unit = UnitGraph::alone(graph);
    let mut backward = Backward::default();
    let listed = DEFINITIONS.iter().map(|op| op.id()).collect();
    fuse(
        &mut unit,
        &mut backward,
        &BackendOps::new("all", Some(listed)),
    );
    Draft {
        unit,
        backward,
        retention: Retention::default(),
        caches: Vec::new(),
        kind: UnitKind::Layer,
        name: "unit".to_owned(),
    }
}

/// The offsets of what the fused product is added to and of its output, and the working memory,
/// where the first `forward` calls are those of the forward pass.
fn places(draft: &Draft, forward: usize) -> ([u64; 2], u64) {
    let dtypes = Dtypes::all(DType::F32);
    let param = |name: &str| Param {
        name: name.to_owned(),
        aliases: Vec::new(),
        shape: vec![8, 8],
        kind: None,
        trainable: false,
        layout: espalier_interface::WeightLayout::Dense(DType::F32),
        init: espalier_interface::Init::Zeros,
        learning_rate_ratio: 1.0,
        unit: 0,
        part_of: None,
    };
    let hidden = ValueLocation::in_arena(0, draft.extent(0, dtypes).expect("of tokens"));
    let output = draft.hidden().expect("an output");
    let fixed = HashMap::from([
        (0, hidden),
        (
            output,
            ValueLocation {
                offset: 64,
                ..hidden
            },
        ),
    ]);
    let steps = UnitSteps {
        draft,
        params: &[param("w"), param("v")],
        dtypes,
        limits: Limits {
            max_tokens: 2,
            max_sequences: 1,
            recompute: Recompute::None,
            cache: None,
            head_chunk_bytes: HEAD_CHUNK_BYTES,
        },
        fixed: &fixed,
        work_begin: 128,
    };
    let made = steps.of(&draft.forward_calls(), forward);
    let made = made.expect("a layout");
    let product = &made.steps[1];
    assert_eq!(product.request.version, 2);
    let offset = |at: usize| match product.operands[at] {
        OperandPlace::Value(place) => place.offset,
        other => panic!("{other:?}"),
    };
    ([offset(1), offset(3)], made.work_bytes)
}

#[test]
fn a_sum_takes_the_memory_of_what_nothing_reads_later() {
    let ([added, output], bytes) = places(&draft(1), 3);
    assert_eq!((added, output, bytes), (128, 128, 64));
    let ([added, output], bytes) = places(&draft(0), 3);
    assert_ne!(added, output, "`swiglu` reads both");
    assert_eq!(bytes, 128);
}

#[test]
fn outputs_are_written_over_after_the_forward_pass_alone() {
    let mut draft = draft(1);
    let base = draft.unit.nodes[0].node.outputs[0];
    draft.unit.graph.output("logits", base);
    let ([added, output], _) = places(&draft, 3);
    assert_ne!(added, output, "the output is read after the call");
    let ([added, output], _) = places(&draft, 1);
    assert_eq!(added, output);
}
