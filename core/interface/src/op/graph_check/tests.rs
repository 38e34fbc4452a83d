//! Bad graphs -> errors that name graph, op, operand, what was expected and what was found.

use super::*;
use crate::DType;
use crate::graph::{Attributes, Dim, Source, ValueType};
use crate::op;

/// A graph with a hidden state `[T, 8]` as value 0.
fn graph() -> Graph {
    let mut graph = Graph::new("g");
    let source = Source::Previous("hidden".to_owned());
    graph.input(source, [Dim::Tokens, Dim::Fixed(8)], DType::COMPUTE);
    graph
}

fn rows(width: u64, dtype: DType) -> ValueType {
    ValueType {
        shape: vec![Dim::Tokens, Dim::Fixed(width)],
        dtype,
    }
}

#[test]
fn a_value_read_before_it_is_made_is_refused() {
    let mut graph = graph();
    let late = graph.value([Dim::Tokens], DType::COMPUTE);
    let ty = graph.type_of(0).clone();
    graph.node("add", &[0, late], &[], vec![ty], Attributes::new());
    let message = graph.validate().expect_err("value 1 is never made").message;
    assert_eq!(
        message,
        "graph `g`: node 0: op `add` reads value 1 before it is made"
    );
}

#[test]
fn a_fused_op_is_the_core_s_alone() {
    let mut graph = graph();
    let weight = graph.param("w", [8, 8]);
    op::linear(&mut graph, 0, weight, None);
    graph.nodes[0].version = 2;
    let message = graph.validate().expect_err("a fused op").message;
    let words = "version 2 of op `linear` stands for several calls: only the core makes it of them";
    assert_eq!(message, format!("graph `g`: node 0: {words}"));
}

#[test]
fn an_op_that_the_interface_does_not_know_is_left_to_the_backend() {
    let mut graph = graph();
    let ty = rows(3, DType::F16);
    graph.node(
        "my_own",
        &[0, 0, 0],
        &[],
        vec![ty],
        Attributes::new().with("x", 1),
    );
    assert_eq!(graph.validate(), Ok(()));
    graph.nodes[0].op = "add".to_owned();
    assert!(graph.validate().is_err());
    graph.nodes[0].version = 7;
    assert_eq!(graph.validate(), Ok(()));
}

/// A change to a sound graph, and what the error says.
type Bad = (&'static str, fn(&mut Graph), &'static str);

/// One bad graph for each rule of the definitions.
const BAD: &[Bad] = &[
    (
        "columns beyond the last",
        |g| {
            op::slice_columns(g, 0, 5, 4);
        },
        "op `slice_columns`: 4 columns from 5 on do not lie within 8 columns",
    ),
    (
        "a weight that divides no row",
        |g| {
            let weight = g.param("w", [5]);
            op::rms_norm_offset(g, 0, weight, 1e-6, 1.0);
        },
        "op `rms_norm_offset`: param `weight` is [5], expected a divisor of the 8 columns",
    ),
    (
        "a gate of another width",
        |g| {
            let source = Source::Previous("up".to_owned());
            let up = g.input(source, [Dim::Tokens, Dim::Fixed(4)], DType::COMPUTE);
            op::geglu_tanh(g, 0, up);
        },
        "op `geglu_tanh`: input `up` is compute [T, 4], expected compute [T, 8]",
    ),
    (
        "a norm's bias of another width",
        |g| {
            let (weight, bias) = (g.param("w", [8]), g.param("b", [4]));
            op::layer_norm(g, 0, weight, Some(bias), 1e-5);
        },
        "op `layer_norm`: param `bias` is [4], expected 8 elements",
    ),
    (
        "a form of GELU that does not exist",
        |g| {
            let ty = g.type_of(0).clone();
            let form = Attributes::new().with("approximate", "sigmoid");
            g.node("gelu", &[0], &[], vec![ty], form);
        },
        "op `gelu`: attribute `approximate` is sigmoid, expected `none` or `tanh`",
    ),
    (
        "a weight of another width",
        |g| {
            let weight = g.param("w", [4, 5]);
            op::linear(g, 0, weight, None);
        },
        "op `linear`: input `x` is compute [T, 8], expected compute [T, 5]",
    ),
    (
        "an output of another width",
        |g| {
            let weight = g.param("w", [4, 8]);
            g.node(
                "linear",
                &[0],
                &[weight],
                vec![rows(5, DType::COMPUTE)],
                Attributes::new(),
            );
        },
        "op `linear`: output `y` is compute [T, 5], expected compute [T, 4]",
    ),
    (
        "an output of another dtype",
        |g| {
            let weight = g.param("w", [4, 8]);
            g.node(
                "linear",
                &[0],
                &[weight],
                vec![rows(4, DType::REDUCE)],
                Attributes::new(),
            );
        },
        "op `linear`: output `y` is reduce [T, 4], expected compute [T, 4]",
    ),
    (
        "a bias of another length",
        |g| {
            let (weight, bias) = (g.param("w", [4, 8]), g.param("b", [5]));
            op::linear(g, 0, weight, Some(bias));
        },
        "op `linear`: param `bias` is [5], expected [4]",
    ),
    (
        "a weight that is no matrix",
        |g| {
            let weight = g.param("w", [4]);
            g.node(
                "linear",
                &[0],
                &[weight],
                vec![rows(4, DType::COMPUTE)],
                Attributes::new(),
            );
        },
        "op `linear`: param `weight` is [4], expected a matrix",
    ),
    (
        "no param",
        |g| {
            g.node(
                "linear",
                &[0],
                &[],
                vec![rows(4, DType::COMPUTE)],
                Attributes::new(),
            );
        },
        "op `linear`: 1 inputs, 0 params and 1 outputs, expected 1, 1 to 2 and 1",
    ),
    (
        "values in the place of tokens",
        |g| {
            let weight = g.param("w", [9, 8]);
            op::embedding(g, 0, weight, op::EmbeddingLayout::ByRow);
        },
        "op `embedding`: input `tokens` is compute [T, 8], expected i32 [T]",
    ),
    (
        "groups that do not divide the columns",
        |g| {
            let weight = g.param("w", [3]);
            op::rms_norm(g, 0, weight, 1e-5);
        },
        "op `rms_norm`: param `weight` is [3], expected a divisor of the 8 columns",
    ),
    (
        "an attribute left out",
        |g| {
            let (weight, ty) = (g.param("w", [8]), rows(8, DType::COMPUTE));
            g.node("rms_norm", &[0], &[weight], vec![ty], Attributes::new());
        },
        "op `rms_norm`: attribute `eps`: expected a number, found nothing",
    ),
    (
        "an attribute of another type",
        |g| {
            let ty = rows(8, DType::COMPUTE);
            g.node(
                "scale",
                &[0],
                &[],
                vec![ty],
                Attributes::new().with("alpha", "two"),
            );
        },
        "op `scale`: attribute `alpha`: expected a number, found \"two\"",
    ),
    (
        "an attribute that the op does not have",
        |g| {
            let ty = rows(8, DType::COMPUTE);
            g.node(
                "mul",
                &[0, 0],
                &[],
                vec![ty],
                Attributes::new().with("alpha", 2),
            );
        },
        "op `mul`: unknown attribute `alpha` = 2",
    ),
    (
        "heads that do not divide the columns",
        |g| {
            let positions = g.batch(crate::graph::batch::POSITIONS);
            op::rope(g, 0, positions, 3, &[1.0], 1.0);
        },
        "op `rope`: heads of 3 columns do not divide 8 columns",
    ),
    (
        "more frequencies than half of a head",
        |g| {
            let positions = g.batch(crate::graph::batch::POSITIONS);
            op::rope(g, 0, positions, 4, &[1.0, 0.5, 0.25], 1.0);
        },
        "op `rope`: attribute `inv_freq` has 3 numbers, expected at most 2",
    ),
    (
        "queries of another width",
        |g| {
            attention(g, 3);
        },
        "op `attention`: input `q` is compute [T, 8], expected compute [T, 12]",
    ),
    (
        "heads that cannot be shared",
        |g| {
            let at = attention(g, 2);
            g.nodes[at]
                .attributes
                .0
                .insert("kv_heads".to_owned(), 3.into());
        },
        "op `attention`: 2 heads cannot share 3 key/value heads",
    ),
    (
        "a window of no token",
        |g| {
            let at = attention(g, 2);
            g.nodes[at]
                .attributes
                .0
                .insert("window".to_owned(), 0.into());
        },
        "op `attention`: attribute `window` is 0, expected at least 1",
    ),
    (
        "summands of two widths",
        |g| {
            let other = g.value([Dim::Tokens, Dim::Fixed(4)], DType::COMPUTE);
            let source = Source::Batch("other".to_owned());
            g.inputs.push(crate::graph::Input {
                source,
                value: other,
            });
            op::add(g, 0, other, 1.0);
        },
        "op `add`: input `b` is compute [T, 4], expected compute [T, 8]",
    ),
    (
        "a factor for each of too many channels",
        |g| {
            let weight = g.param("w", [3, 3]);
            op::scale_channels(g, 0, weight);
        },
        "op `scale_channels`: param `weight` is [3, 3], expected 8 elements",
    ),
    (
        "a share above one",
        |g| {
            op::dropout(g, 0, 1.5);
        },
        "op `dropout`: attribute `p` is 1.5, expected 0 <= p < 1",
    ),
    (
        "a gradient of a param",
        |g| {
            let ty = ValueType {
                shape: vec![Dim::Fixed(8), Dim::Fixed(8)],
                dtype: DType::REDUCE,
            };
            g.node(
                "linear_weight_backward",
                &[0, 0],
                &[],
                vec![ty],
                Attributes::new(),
            );
        },
        "op `linear_weight_backward` changes what its outputs held before",
    ),
];

/// Appends attention of `heads` heads of 4 columns, and gives the index of its node.
fn attention(graph: &mut Graph, heads: u64) -> usize {
    let cu_seqlens = graph.batch(crate::graph::batch::CU_SEQLENS);
    let shape = op::AttentionShape {
        heads,
        kv_heads: 1,
        head_dim: 4,
        scale: 0.5,
        window: None,
        softcap: None,
    };
    op::attention(graph, 0, 0, 0, cu_seqlens, shape);
    graph.nodes.len() - 1
}

#[test]
fn bad_graphs_are_refused_by_name() {
    for (what, spoil, words) in BAD {
        let mut graph = graph();
        spoil(&mut graph);
        let error = graph.validate().expect_err(what);
        assert_eq!(error.code, crate::ErrorCode::INVALID, "{what}");
        let message = error.message;
        assert!(
            message.starts_with("graph `g`: node 0: op `"),
            "{what}: {message}"
        );
        assert!(message.contains(words), "{what}: {message}");
    }
}
