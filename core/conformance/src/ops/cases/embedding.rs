//! Cases of `embedding` and its gradient, by row and by column.

use espalier_interface::DType;
use espalier_interface::graph::Dim;

use super::{COMPUTE, STORED, fixed, rows};
use crate::ops::case::{Case, Near};
use crate::ops::numbers::{absolute, drawn, integers};
use crate::ops::oracle;
use crate::ops::rounding::U;

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
fn tokens(t: usize, vocab: usize) -> Vec<i32> {
    let tokens = (0..t).map(|i| match i % 3 {
        0 => vocab as i32 - 1,
        _ => (i * i % vocab) as i32,
    });
    tokens
        .map(|token| if token == 1 { 0 } else { token })
        .collect()
}

fn each(case: impl Fn(DType, [usize; 3], (DType, bool), String) -> Case) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in COMPUTE {
        for (index, [t, v, d]) in SHAPES.into_iter().enumerate() {
            for transposed in [false, true] {
                let stored = STORED[index % STORED.len()];
                let order = if transposed { "by column" } else { "by row" };
                let name = format!("{dtype}, T {t}, V {v}, D {d}, weight {stored} {order}");
                cases.push(case(dtype, [t, v, d], (stored, transposed), name));
            }
        }
    }
    cases
}

fn shape([v, d]: [usize; 2], transposed: bool) -> [usize; 2] {
    if transposed { [d, v] } else { [v, d] }
}

/// `embedding`: the element of the table, rounded to the compute dtype.
pub fn embedding() -> Vec<Case> {
    each(|dtype, [t, v, d], (stored, transposed), name| {
        let (weight, tokens) = (drawn(v * d, stored, 1), tokens(t, v));
        let values = oracle::embedding(&tokens, &weight, [v, d], transposed);
        let case = Case::new("embedding", t, name);
        let case = case.input(&[Dim::Tokens], DType::I32, &integers(&tokens));
        let case = case.param(&shape([v, d], transposed), stored, &weight);
        let case = case.attribute("transposed", transposed);
        case.output(&rows(d), dtype, Near::exact(values))
    })
}

/// `embedding_backward`: a rounding for each time that the token occurs, none where it does not.
pub fn embedding_backward() -> Vec<Case> {
    each(|dtype, [t, v, d], (_, transposed), name| {
        let (dy, tokens) = (drawn(t * d, dtype, 1), tokens(t, v));
        let start = drawn(v * d, DType::F32, 2);
        let sums = |dy: &[f64]| oracle::embedding_backward(dy, &tokens, [v, d], transposed);
        let values = oracle::add(&start, &sums(&dy), 1.0);
        let times = sums(&vec![1.0; t * d]);
        let sizes = oracle::add(&absolute(&start), &sums(&absolute(&dy)), 1.0);
        let bounds = times
            .iter()
            .zip(&sizes)
            .map(|(times, size)| times * U * size);
        let expected = Near::new(values, bounds.collect());
        let case = Case::new("embedding_backward", t, name).input(&rows(d), dtype, &dy);
        let case = case.input(&[Dim::Tokens], DType::I32, &integers(&tokens));
        let case = case.attribute("transposed", transposed);
        let shape = fixed(shape([v, d], transposed));
        case.updated(&shape, DType::F32, &start, expected)
    })
}
