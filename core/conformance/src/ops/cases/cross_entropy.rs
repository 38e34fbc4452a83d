//! Cases of `cross_entropy` and its gradient.

use espalier_interface::DType;
use espalier_interface::graph::Dim;

use super::{COMPUTE, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::draw::Draw;
use crate::ops::numbers::{integers, rounded};
use crate::ops::op_check::OpCheck;
use crate::ops::oracle::{self, IGNORED};
use crate::ops::rounding::{U, nearest};

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.cross_entropy",
        asserts: "loss, lse and correct, zeros where the label is -100",
        cases: cross_entropy,
    },
    OpCheck {
        name: "op.cross_entropy_backward",
        asserts: "(e^(l - lse) - [label]) factor",
        cases: cross_entropy_backward,
    },
    OpCheck {
        name: "op.cross_entropy_backward.2",
        asserts: "(e^(l - lse) - [label]) factor, also in the memory of the logits",
        cases: |draw| {
            let cases = cross_entropy_backward(draw).into_iter().map(|case| {
                let case = case.version(2);
                if draw.or(case.tokens % 3 != 0, |dice| dice.once_in(2)) {
                    case.in_place_of(0)
                } else {
                    case
                }
            });
            cases.collect()
        },
    },
];

/// `[T, V]` and the factor of the logits: near zero, and so large that `e^l` overflows f32.
const SHAPES: [([usize; 2], f64); 7] = [
    ([0, 5], 1.0),
    ([1, 1], 1.0),
    ([3, 17], 4.0),
    ([17, 65], 60.0),
    ([65, 33], 4.0),
    ([2, 4099], 4.0),
    ([5, 1031], 0.01),
];

/// A row's own logits, and a label; every fifth label is -100.
struct Sample {
    logits: Vec<f64>,
    labels: Vec<i32>,
}

fn shapes(draw: &Draw) -> Vec<([usize; 2], f64)> {
    draw.shapes(&SHAPES, |dice| (dice.rows(), dice.scale(0.01, 60.0)))
}

fn sample(draw: &Draw, dtype: DType, [t, vocab]: [usize; 2], factor: f64) -> Sample {
    let mut logits = draw.normal(t * vocab, dtype, 1);
    for x in &mut logits {
        *x = nearest(dtype, *x * factor);
    }
    let label = |i: usize| match i % 5 {
        4 => IGNORED,
        3 => vocab as i32 - 1,
        _ => (i * 31 % vocab) as i32,
    };
    let mut labels = draw.indices((0..t).map(label).collect(), vocab);
    for (i, logits) in logits.chunks_exact_mut(vocab).enumerate() {
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let first = logits.iter().position(|l| *l == most).unwrap_or(0);
        if i % 5 == 1 {
            // The prediction is right.
            labels[i] = first as i32;
        }
        if i % 10 == 1 && first + 1 < vocab {
            // The largest logit occurs twice; the label's is the second.
            logits[vocab - 1] = most;
            labels[i] = vocab as i32 - 1;
        }
    }
    Sample { logits, labels }
}

/// The error of a row's log-sum-exp, and that of its loss: differences to the largest logit are
/// rounded, which `e^x` makes relative; V sums and a logarithm, 4 u each for the functions; then
/// the sums of logits and logarithm, in either order.
fn errors(logits: &[f64], lse: f64, label: f64) -> [f64; 2] {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let spread = |l: &f64| (l - lse).exp() * (most - l);
    let spread: f64 = logits.iter().map(spread).sum();
    let log = U * (logits.len() as f64 + 8.0 + spread) + 4.0 * U * (lse - most);
    let lse_error = log + U * (most.abs() + lse.abs());
    [lse_error, lse_error + 2.0 * U * (lse.abs() + label.abs())]
}

/// `cross_entropy`.
fn cross_entropy(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for ([t, vocab], factor) in shapes(draw) {
            let Sample { logits, labels } = sample(draw, dtype, [t, vocab], factor);
            let made = oracle::cross_entropy(&logits, &labels, vocab);
            let mut bounds = [Vec::new(), Vec::new()];
            for (i, l) in logits.chunks_exact(vocab).enumerate() {
                let found = match labels[i] {
                    IGNORED => [0.0; 2],
                    label => errors(l, made.lse[i], l[label as usize]),
                };
                bounds[0].push(found[0]);
                bounds[1].push(found[1]);
            }
            let [lse, loss] = bounds;
            let name = format!("{dtype}, T {t}, V {vocab}, logits times {factor}");
            let case = OpCase::new("cross_entropy", t, name).input(&rows(vocab), dtype, &logits);
            let case = case.input(&[Dim::Tokens], DType::I32, &integers(&labels));
            let each = [Dim::Tokens];
            let case = case.output(&each, DType::F32, Near::new(made.loss, loss));
            let case = case.output(&each, DType::F32, Near::new(made.lse, lse));
            cases.push(case.output(&each, DType::I32, Near::exact(made.correct)));
        }
    }
    cases
}

/// `cross_entropy_backward`: the difference to lse is rounded, `e^x` is good to 4 u, less one,
/// times the factor, which is rounded too.
fn cross_entropy_backward(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for ([t, vocab], factor) in shapes(draw) {
            let Sample { logits, labels } = sample(draw, dtype, [t, vocab], factor);
            let lse = oracle::cross_entropy(&logits, &labels, vocab).lse;
            let lse = rounded(DType::F32, &lse);
            let scale = draw.or(1.0 / 37.0, |dice| dice.scale(1e-4, 1.0));
            let values = oracle::cross_entropy_backward(&logits, &labels, &lse, vocab, scale);
            let bound = |at: usize| {
                let (row, v) = (at / vocab, at % vocab);
                if labels[row] == IGNORED {
                    return 0.0;
                }
                let distance = logits[at] - lse[row];
                let one = f64::from(labels[row] == v as i32);
                let p = distance.exp();
                scale * U * (p * (distance.abs() + 4.0) + 3.0 * (p + one))
            };
            let bounds = (0..logits.len()).map(bound).collect();
            let name = format!("{dtype}, T {t}, V {vocab}, logits times {factor}");
            let case = OpCase::new("cross_entropy_backward", t, name);
            let case = case.input(&rows(vocab), dtype, &logits);
            let case = case.input(&[Dim::Tokens], DType::I32, &integers(&labels));
            let case = case.input(&[Dim::Tokens], DType::F32, &lse);
            let case = case.scalars(&[scale]);
            cases.push(case.output(&rows(vocab), dtype, Near::new(values, bounds)));
        }
    }
    cases
}
