//! Cases of `embedding` and its gradient, by row and by column.

use espalier_interface::DType;
use espalier_interface::graph::Dim;
use espalier_interface::op::EmbeddingLayout;

use super::{COMPUTE, STORED, fixed, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::draw::Draw;
use crate::ops::numbers::{absolute, integers};
use crate::ops::op_check::OpCheck;
use crate::ops::oracle;
use crate::ops::rounding::U;

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.embedding",
        asserts: "the token's row, or column, of a table",
        cases: embedding,
    },
    OpCheck {
        name: "op.embedding_backward",
        asserts: "dy is added to the token's row, or column",
        cases: embedding_backward,
    },
];

/// `[T, V, D]`.
const SHAPES: [[usize; 3]; 6] = [
    [0, 3, 5],
    [1, 1, 1],
    [3, 7, 17],
    [17, 5, 33],
    [65, 131, 3],
    [300, 11, 259],
];

/// Tokens of the whole vocabulary but its second: the first, the last, and many twice.
fn tokens(draw: &Draw, t: usize, vocab: usize) -> Vec<i32> {
    let tokens = (0..t).map(|i| match i % 3 {
        0 => vocab as i32 - 1,
        _ => (i * i % vocab) as i32,
    });
    let tokens = tokens.map(|token| if token == 1 { 0 } else { token });
    draw.or(tokens.collect(), |dice| {
        (0..t).map(|_| dice.below(vocab) as i32).collect()
    })
}

fn each(
    draw: &Draw,
    case: impl Fn(DType, [usize; 3], (DType, EmbeddingLayout), String) -> OpCase,
) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        let shapes = draw.shapes(&SHAPES, |dice| {
            [dice.tokens(300), dice.extent(300), dice.extent(300)]
        });
        for (index, [t, v, d]) in shapes.into_iter().enumerate() {
            for layout in draw.each(&[EmbeddingLayout::ByRow, EmbeddingLayout::ByColumn]) {
                let stored = draw.or_one_of(STORED[index % STORED.len()], &STORED);
                let name = format!("{dtype}, T {t}, V {v}, D {d}, weight {stored}, {layout:?}");
                cases.push(case(dtype, [t, v, d], (stored, layout), name));
            }
        }
    }
    cases
}

fn shape([v, d]: [usize; 2], layout: EmbeddingLayout) -> [usize; 2] {
    match layout {
        EmbeddingLayout::ByRow => [v, d],
        EmbeddingLayout::ByColumn => [d, v],
    }
}

/// `embedding`: the element of the table, rounded to the compute dtype.
fn embedding(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, v, d], (stored, layout), name| {
        let (weight, tokens) = (draw.numbers(v * d, stored, 1), tokens(draw, t, v));
        let values = oracle::embedding(&tokens, &weight, [v, d], layout);
        let case = OpCase::new("embedding", t, name);
        let case = case.input(&[Dim::Tokens], DType::I32, &integers(&tokens));
        let case = case.param(&shape([v, d], layout), stored, &weight);
        let case = case.attribute("transposed", layout == EmbeddingLayout::ByColumn);
        case.output(&rows(d), dtype, Near::exact(values))
    })
}

/// `embedding_backward`: a rounding for each time that the token occurs, none where it does not.
fn embedding_backward(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, v, d], (_, layout), name| {
        let (dy, tokens) = (draw.numbers(t * d, dtype, 1), tokens(draw, t, v));
        let start = draw.numbers(v * d, DType::F32, 2);
        let sums = |dy: &[f64]| oracle::embedding_backward(dy, &tokens, [v, d], layout);
        let values = oracle::add(&start, &sums(&dy), 1.0);
        let times = sums(&vec![1.0; t * d]);
        let sizes = oracle::add(&absolute(&start), &sums(&absolute(&dy)), 1.0);
        let bounds = times
            .iter()
            .zip(&sizes)
            .map(|(times, size)| times * U * size);
        let expected = Near::new(values, bounds.collect());
        let case = OpCase::new("embedding_backward", t, name).input(&rows(d), dtype, &dy);
        let case = case.input(&[Dim::Tokens], DType::I32, &integers(&tokens));
        let case = case.attribute("transposed", layout == EmbeddingLayout::ByColumn);
        let shape = fixed(shape([v, d], layout));
        case.updated(&shape, DType::F32, &start, expected)
    })
}
