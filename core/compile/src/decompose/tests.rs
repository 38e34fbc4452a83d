//! Decompositions fit the definitions of their parts, for all dtypes; and refusals.

use std::collections::BTreeMap;

use espalier_interface::graph::{Dim, Graph, Source, batch};
use espalier_interface::op::{self, AttentionShape, DEFINITIONS};
use espalier_interface::{DType, KernelRequest, OpId, Operand, ParamOperand, WeightLayout};

use super::table::DECOMPOSITIONS;
use super::*;
use crate::grad::{InputGradient, differentiate};

/// All ops of the interface but `hidden`.
fn without(hidden: &[&str]) -> BackendOps {
    let listed = DEFINITIONS.iter().filter(|op| !hidden.contains(&op.name));
    BackendOps::new(
        "half",
        Some(listed.map(|op| OpId::first(op.name)).collect()),
    )
}

/// The names of all ops that have a decomposition.
fn decomposable() -> Vec<&'static str> {
    DECOMPOSITIONS.iter().map(|one| one.op).collect()
}

fn dtypes(compute: DType) -> Dtypes {
    Dtypes {
        compute,
        reduce: DType::F32,
        params: DType::F32,
        gradients: DType::F32,
    }
}

/// A unit of the ops that `build` appends to a hidden state of `width` columns.
fn unit(width: u64, build: impl FnOnce(&mut Graph, usize)) -> UnitGraph {
    let mut graph = Graph::new("unit");
    let source = Source::Previous("hidden".to_owned());
    let shape = [Dim::Tokens, Dim::Fixed(width)];
    let hidden = graph.input(source, shape, DType::COMPUTE);
    build(&mut graph, hidden);
    assert_eq!(graph.validate(), Ok(()));
    UnitGraph::alone(graph)
}

/// A layer with each of the ops that a layer may have.
fn layer() -> UnitGraph {
    unit(24, |graph, hidden| {
        let positions = graph.batch(batch::POSITIONS);
        let (whole, head) = (graph.param("norm", [24]), graph.param("head", [8]));
        let channels = graph.param("channels", [24, 1]);
        let mut x = op::rms_norm(graph, hidden, whole, 1e-5);
        x = op::rms_norm(graph, x, head, 1e-5);
        x = op::rms_norm_offset(graph, x, whole, 1e-5, 1.0);
        x = op::rms_norm_offset(graph, x, head, 1e-5, 1.0);
        x = op::rope(graph, x, positions, 8, &[1.0, 0.1, 0.01, 0.001], 1.0);
        // Part of a head is not rotated.
        x = op::rope(graph, x, positions, 8, &[1.0, 0.1, 0.01], 1.25);
        let scaled = op::scale_channels(graph, x, channels);
        let y = op::swiglu(graph, x, scaled);
        let y = op::geglu_tanh(graph, y, x);
        let y = op::gelu(graph, y, op::GeluForm::Exact);
        let y = op::gelu(graph, y, op::GeluForm::Tanh);
        let y = op::layer_norm(graph, y, whole, None, 1e-5);
        let shift = graph.param("shift", [24]);
        let y = op::layer_norm(graph, y, whole, Some(shift), 1e-5);
        graph.output("hidden", y);
    })
}

fn head() -> UnitGraph {
    unit(17, |graph, logits| {
        let labels = graph.batch(batch::LABELS);
        let [loss, _, correct] = op::cross_entropy(graph, logits, labels);
        graph.output("loss", loss);
        graph.output("correct", correct);
    })
}

/// The request of a call, as the layout of a unit makes it.
fn request(unit: &UnitGraph, node: &GradNode, dtypes: Dtypes) -> KernelRequest {
    let value = |value: usize| Operand {
        shape: unit.graph.values[value].shape.clone(),
        dtype: dtypes.resolve(unit.graph.values[value].dtype),
    };
    let params = node.params.iter().map(|&param| ParamOperand {
        shape: unit.graph.params[param].shape.clone(),
        layout: WeightLayout::Dense(DType::BF16),
    });
    let outputs = node.outputs.iter().map(|target| match *target {
        Target::Value(id) => value(id),
        Target::Gradient(param) => Operand {
            shape: unit.graph.params[param]
                .shape
                .iter()
                .map(|&n| Dim::Fixed(n))
                .collect(),
            dtype: dtypes.reduce,
        },
    });
    KernelRequest::new(node.op)
        .attributes(node.attributes.clone())
        .inputs(node.inputs.iter().map(|&id| value(id)).collect())
        .params(params.collect())
        .outputs(outputs.collect())
        .limits(8, 1)
}

#[test]
fn parts_fit_their_definitions_in_every_dtype() {
    for compute in [DType::F32, DType::BF16] {
        let (dtypes, ops) = (dtypes(compute), without(&decomposable()));
        let mut decomposed = BTreeSet::new();
        for mut unit in [layer(), head()] {
            let trainable = vec![true; unit.params.len()];
            let made = differentiate(&mut unit, &trainable, InputGradient::Wanted);
            let mut backward = made.expect("every op has a rule");
            decompose(&mut unit, &mut backward, &ops, dtypes, &mut decomposed)
                .expect("every part is there");
            for placed in &unit.nodes {
                let node = &placed.node;
                let definition = op::definition(&node.op, 1).expect("a part is an op");
                let node = GradNode {
                    op: definition.name,
                    version: 1,
                    inputs: node.inputs.clone(),
                    params: node.params.clone(),
                    outputs: node.outputs.iter().copied().map(Target::Value).collect(),
                    attributes: node.attributes.clone(),
                    dropout: None,
                    site: None,
                };
                assert_eq!(request(&unit, &node, dtypes).validate(), Ok(()));
            }
            for node in &backward.nodes {
                assert_eq!(
                    request(&unit, node, dtypes).validate(),
                    Ok(()),
                    "{}",
                    node.op
                );
                assert!(ops.has(node.op, 1), "{}", node.op);
            }
        }
        assert_eq!(decomposed.into_iter().collect::<Vec<_>>(), decomposable());
    }
}

#[test]
fn a_backend_that_lists_nothing_keeps_its_calls() {
    let (mut unit, mut decomposed) = (layer(), BTreeSet::new());
    let before = unit.nodes.len();
    let ops = BackendOps::new("old", None);
    let mut backward = Backward::default();
    decompose(
        &mut unit,
        &mut backward,
        &ops,
        dtypes(DType::F32),
        &mut decomposed,
    )
    .expect("it has all ops");
    assert_eq!((unit.nodes.len(), decomposed.len()), (before, 0));
}

/// The message where `ops` lack something of a layer with attention.
fn refused(ops: &BackendOps) -> String {
    let mut unit = unit(8, |graph, hidden| {
        let cu_seqlens = graph.batch(batch::CU_SEQLENS);
        let shape = AttentionShape {
            heads: 2,
            kv_heads: 2,
            head_dim: 4,
            scale: 0.5,
            window: None,
            softcap: None,
        };
        let out = op::attention(graph, hidden, hidden, hidden, cu_seqlens, shape);
        let y = op::swiglu(graph, out, out);
        graph.output("hidden", y);
    });
    let mut backward = Backward::default();
    let made = decompose(
        &mut unit,
        &mut backward,
        ops,
        dtypes(DType::BF16),
        &mut BTreeSet::new(),
    );
    made.expect_err("something is lacking").message
}

#[test]
fn what_cannot_be_decomposed_is_refused_by_name() {
    let message = refused(&without(&["attention"]));
    assert!(
        message.starts_with("op `attention` is not among the ops of backend `half`"),
        "{message}"
    );
    assert!(
        message.contains("it has adamw, adamw8bit, adapted_row_norms, add, "),
        "{message}"
    );
    let message = refused(&without(&["swiglu", "sigmoid"]));
    assert!(
        message.starts_with("op `sigmoid`, of which op `swiglu` would be made, is not among"),
        "{message}"
    );
}

#[test]
fn what_a_backend_lacks_is_told_apart() {
    let lacking = Lacking::of(&without(&["swiglu", "attention", "init"]));
    assert_eq!(lacking.decomposed, ["swiglu"]);
    assert_eq!(lacking.missing, ["attention"]);
    assert!(lacking.unmade.is_empty());
    // The run would be refused.
    let lacking = Lacking::of(&without(&["swiglu", "rope", "sigmoid"]));
    assert_eq!(lacking.decomposed, ["rope"]);
    assert_eq!(lacking.unmade, [["swiglu", "sigmoid"]]);
    assert!(lacking.missing.is_empty());
    assert_eq!(
        Lacking::of(&BackendOps::new("old", None)),
        Lacking::default()
    );
}

/// What `host doctor` says follows from the lists, and what a run needs from the calls.
#[test]
fn an_op_lists_the_parts_that_its_calls_are_made_of() {
    let mut made: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for compute in [DType::F32, DType::BF16] {
        for mut unit in [layer(), head()] {
            let trainable = vec![true; unit.params.len()];
            let backward = differentiate(&mut unit, &trainable, InputGradient::Wanted);
            let backward = backward.expect("every op has a rule").nodes;
            let forward: Vec<Node> = unit.nodes.iter().map(|one| one.node.clone()).collect();
            let forward = forward.iter().map(|node| {
                let outputs = node.outputs.iter().copied().map(Target::Value).collect();
                (
                    node.op.as_str(),
                    &node.attributes,
                    &node.inputs,
                    &node.params,
                    outputs,
                )
            });
            let backward = backward.iter().map(|node| {
                let GradNode {
                    op,
                    attributes,
                    inputs,
                    params,
                    outputs,
                    ..
                } = node;
                (*op, attributes, inputs, params, outputs.clone())
            });
            for (op, attributes, inputs, params, outputs) in forward.chain(backward) {
                let Some(known) = decomposition(op, 1) else {
                    continue;
                };
                let whole = Whole {
                    op,
                    version: 1,
                    attributes,
                    inputs,
                    params,
                    outputs: &outputs,
                };
                let parts = parts_of(&mut unit, &whole, &without(&[]), dtypes(compute));
                let parts = parts.expect("every part is there");
                let made = made.entry(known.op).or_default();
                made.extend(parts.iter().map(|part| part.op));
            }
        }
    }
    let listed = DECOMPOSITIONS
        .iter()
        .map(|one| (one.op, one.parts.iter().copied().collect::<BTreeSet<_>>()));
    assert_eq!(made, listed.collect());
}
