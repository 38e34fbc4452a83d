//! Cases of `rms_norm` and its gradients.

use espalier_interface::DType;

use super::{COMPUTE, STORED, fixed, rows, terms};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle::{self, inverse_rms};
use crate::ops::rounding::{U, nearest};

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.rms_norm",
        asserts: "round(x r) w, of rows and of heads",
        cases: rms_norm,
    },
    OpCheck {
        name: "op.rms_norm_backward",
        asserts: "r (g - x r^2 mean(g x))",
        cases: |draw| {
            let finish: Finish = |_, case, dtype, d, near| case.output(&rows(d), dtype, near);
            rms_norm_backward(draw, finish)
        },
    },
    OpCheck {
        name: "op.rms_norm_weight_backward",
        asserts: "the sum of dy round(x r) is added to the gradient",
        cases: rms_norm_weight_backward,
    },
];

/// `[T, D, G]`: whole rows, and heads of them.
const SHAPES: [[usize; 3]; 8] = [
    [0, 5, 5],
    [1, 1, 1],
    [3, 17, 17],
    [17, 65, 65],
    [65, 33, 11],
    [3, 96, 32],
    [5, 15, 3],
    [2, 4099, 4099],
];
const EPS: f64 = 1e-5;

/// Rows and groups of them.
fn random(dice: &Dice) -> [usize; 3] {
    let [t, group] = dice.rows();
    let groups = dice.between(1, 1 + 600 / group);
    [t, groups * group, group]
}

pub(super) fn eps(draw: &Draw) -> f64 {
    draw.or(EPS, |dice| dice.scale(1e-7, 1e-2))
}

/// Makes the output of a gradient of that dtype and width.
pub(super) type Finish = fn(&Draw, OpCase, DType, usize, Near) -> OpCase;

/// The relative error of `1 / sqrt(mean + eps)`: a sum of G squares, the quotient and eps under a
/// root, which halves it; the root, and one over it.
pub(super) fn error_of_inverse(group: usize) -> f64 {
    terms(group, 2) / 2.0 + 2.0 * U
}

/// The error of a number after it is rounded to `dtype`, given its relative error before. An error
/// near a tie moves it by a whole step.
fn flip(dtype: DType, x: f64, error: f64) -> f64 {
    let most = x.abs() * error;
    let middle = nearest(dtype, x);
    let ends = [x - most, x + most].map(|x| (nearest(dtype, x) - middle).abs());
    // In f32 the number is not rounded a second time.
    ends[0].max(ends[1]).max(most)
}

pub(super) fn each(
    draw: &Draw,
    case: impl Fn(DType, [usize; 3], DType, String) -> OpCase,
) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for (index, [t, d, group]) in draw.shapes(&SHAPES, random).into_iter().enumerate() {
            let stored = draw.or_one_of(STORED[index % STORED.len()], &STORED);
            let name = format!("{dtype}, T {t}, D {d}, weight {stored} of {group}");
            cases.push(case(dtype, [t, d, group], stored, name));
        }
    }
    cases
}

/// `rms_norm`: the root mean square, a product that is rounded to the dtype, and a product.
fn rms_norm(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d, group], stored, name| {
        let eps = eps(draw);
        let (x, w) = (
            draw.numbers(t * d, dtype, 1),
            draw.numbers(group, stored, 2),
        );
        let values = oracle::rms_norm(&x, &w, eps, |x| nearest(dtype, x));
        let mut bounds = Vec::with_capacity(values.len());
        for (group_idx, x) in x.chunks_exact(group).enumerate() {
            let r = inverse_rms(x, eps);
            for (i, (x, w)) in x.iter().zip(&w).enumerate() {
                let moved = flip(dtype, x * r, error_of_inverse(group) + U) * w.abs();
                bounds.push(moved + U * values[group_idx * group + i].abs());
            }
        }
        let case = OpCase::new("rms_norm", t, name).input(&rows(d), dtype, &x);
        let case = case.param(&[group], stored, &w).attribute("eps", eps);
        case.output(&rows(d), dtype, Near::new(values, bounds))
    })
}

/// `rms_norm_backward`: with `e` the error of `r`, the first term errs by `e + 3 u`, the second by
/// `3 e` and by a sum of G products of three with four more roundings. `finish` makes the output of
/// that dtype and width.
pub(super) fn rms_norm_backward(draw: &Draw, finish: Finish) -> Vec<OpCase> {
    each(draw, |dtype, [t, d, group], stored, name| {
        let eps = eps(draw);
        let [dy, x] = [1, 2].map(|seed| draw.numbers(t * d, dtype, seed));
        let w = draw.numbers(group, stored, 3);
        let values = oracle::rms_norm_backward(&dy, &x, &w, eps);
        let error = 3.0 * error_of_inverse(group) + terms(group, 8);
        let mut bounds = Vec::with_capacity(values.len());
        for (dy, x) in dy.chunks_exact(group).zip(x.chunks_exact(group)) {
            let r = inverse_rms(x, eps);
            let products = dy
                .iter()
                .zip(x)
                .zip(&w)
                .map(|((dy, x), w)| (dy * x * w).abs());
            let mean = products.sum::<f64>() / group as f64;
            for ((dy, x), w) in dy.iter().zip(x).zip(&w) {
                let size = (dy * w).abs() * r + x.abs() * r.powi(3) * mean;
                bounds.push(error * size);
            }
        }
        let case = OpCase::new("rms_norm_backward", t, name);
        let case = case.input(&rows(d), dtype, &dy).input(&rows(d), dtype, &x);
        let case = case.param(&[group], stored, &w).attribute("eps", eps);
        finish(draw, case, dtype, d, Near::new(values, bounds))
    })
}

/// `rms_norm_weight_backward`: a sum over all rows of products with a number that is rounded to the
/// dtype, added to the earlier content.
fn rms_norm_weight_backward(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d, group], _, name| {
        let eps = eps(draw);
        let [dy, x] = [1, 2].map(|seed| draw.numbers(t * d, dtype, seed));
        let start = draw.numbers(group, DType::F32, 3);
        let round = |x| nearest(dtype, x);
        let sums = oracle::rms_norm_weight_backward(&dy, &x, group, eps, round);
        let values = oracle::add(&start, &sums, 1.0);
        let sum_error = terms(t * d / group, 2);
        let mut bounds: Vec<f64> = start.iter().map(|start| sum_error * start.abs()).collect();
        for (dy, x) in dy.chunks_exact(group).zip(x.chunks_exact(group)) {
            let r = inverse_rms(x, eps);
            for (i, bound) in bounds.iter_mut().enumerate() {
                let moved = flip(dtype, x[i] * r, error_of_inverse(group) + U);
                *bound += dy[i].abs() * (moved + sum_error * (x[i] * r).abs());
            }
        }
        let case = OpCase::new("rms_norm_weight_backward", t, name);
        let case = case.input(&rows(d), dtype, &dy).input(&rows(d), dtype, &x);
        let case = case.attribute("eps", eps);
        case.updated(
            &fixed([group]),
            DType::F32,
            &start,
            Near::new(values, bounds),
        )
    })
}
