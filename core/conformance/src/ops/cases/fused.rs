//! Cases of fused versions: with a factor, added to other values, also in their memory.
//!
//! A result is rounded to the output's dtype before it is added, and before or after the factor, as
//! cuBLASLt does it: in bf16 half a step of it is allowed, or of its multiple. The factor is
//! rounded to f32, multiplied and added: 3 u of both terms, and one more for the product's own
//! rounding to f32.

use espalier_interface::DType;

use super::linear::{GRADIENT_SHAPES, Layouts, bias, each};
use super::{COMPUTE, fixed, norm, rows, terms};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::numbers::absolute;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle;
use crate::ops::rounding::{U, ulp};

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.linear.2",
        asserts: "added + alpha (x W^T + bias) over dense and packed weights, also in place",
        cases: |draw| linear(draw, sum),
    },
    OpCheck {
        name: "op.linear.3",
        asserts: "residual + added + alpha (x W^T + b), also in the memory of what is added",
        cases: |draw| linear(draw, residual),
    },
    OpCheck {
        name: "op.linear_input_backward.2",
        asserts: "added + alpha dy W over dense and packed weights, also in place",
        cases: |draw| linear_input_backward(draw, Layouts::All, sum),
    },
    OpCheck {
        name: "op.linear_input_backward.3",
        asserts: "added + alpha dy W, also in place, and alpha dy^T x is added to the gradient",
        cases: both_backward,
    },
    OpCheck {
        name: "op.linear_weight_backward.2",
        asserts: "alpha dy^T x is added to the gradient",
        cases: linear_weight_backward,
    },
    OpCheck {
        name: "op.rms_norm_backward.2",
        asserts: "added + r (g - x r^2 mean(g x)), also in place",
        cases: |draw| {
            norm::rms_norm_backward(draw, |draw, case, dtype, d, near| {
                sum(draw, case, dtype, (d, 1.0), near)
            })
        },
    },
];

/// The version of these ops.
const VERSION: u32 = 2;

/// `alpha` for T tokens: one that is absent is 1.
fn factor(draw: &Draw, tokens: usize, alpha: f64, roll: fn(&Dice) -> f64) -> f64 {
    draw.or(if tokens == 3 { 1.0 } else { alpha }, roll)
}

/// A case of that version with that factor.
pub(super) fn finished(case: OpCase, version: u32, alpha: f64) -> OpCase {
    match alpha {
        1.0 => case.version(version),
        alpha => case.version(version).attribute("alpha", alpha),
    }
}

/// The bounds of a result after it is rounded to `dtype`.
pub(super) fn rounded_bounds(result: &Near, dtype: DType) -> Vec<f64> {
    let near = result.values.iter().zip(&result.bounds);
    let rounded = near.map(|(p, bound)| match dtype {
        DType::BF16 => bound + ulp(dtype, p.abs() + bound) / 2.0,
        _ => *bound,
    });
    rounded.collect()
}

/// The bounds of `alpha` times a result, of which one or the other is rounded to `dtype`.
fn scaled_bounds(result: &Near, dtype: DType, alpha: f64) -> Vec<f64> {
    let alpha = alpha.abs();
    let scaled = Near {
        values: oracle::scale(&result.values, alpha),
        bounds: oracle::scale(&result.bounds, alpha),
    };
    let before = oracle::scale(&rounded_bounds(result, dtype), alpha);
    let after = rounded_bounds(&scaled, dtype);
    before.iter().zip(&after).map(|(a, b)| a.max(*b)).collect()
}

/// What comes of `alpha` times a result of `dtype`, rounded before or after, and of what it is
/// added to.
pub(super) fn summed(result: &Near, dtype: DType, alpha: f64, added: Option<&[f64]>) -> Near {
    let of_result = scaled_bounds(result, dtype, alpha);
    let scaled = oracle::scale(&result.values, alpha);
    let (values, magnitudes) = match added {
        None => (scaled.clone(), absolute(&scaled)),
        Some(added) => (
            oracle::add(added, &result.values, alpha),
            oracle::add(&absolute(added), &absolute(&scaled), 1.0),
        ),
    };
    let own = oracle::scale(&magnitudes, 4.0 * U);
    Near::new(values, oracle::add(&own, &of_result, 1.0))
}

/// A case of a result `[T, width]` over which `alpha` and what is added go. What is added may be
/// absent from a product.
fn sum(
    draw: &Draw,
    case: OpCase,
    dtype: DType,
    (width, alpha): (usize, f64),
    result: Near,
) -> OpCase {
    let (tokens, index) = (case.tokens as usize, case.inputs.len());
    let is_alone = draw.or(tokens == 65, |dice| dice.once_in(4));
    let is_alone = is_alone && case.request.op.starts_with("linear");
    let added = (!is_alone).then(|| draw.numbers(tokens * width, dtype, 4));
    let near = summed(&result, dtype, alpha, added.as_deref());
    let case = finished(case, VERSION, alpha);
    let case = match &added {
        None => case,
        Some(added) => case.input(&rows(width), dtype, added),
    };
    let case = case.output(&rows(width), dtype, near);
    if added.is_some() && is_in_place(draw, tokens) {
        case.in_place_of(index)
    } else {
        case
    }
}

/// Whether the output is in the memory of what is added.
fn is_in_place(draw: &Draw, tokens: usize) -> bool {
    draw.or([17, 33, 34].contains(&tokens), |dice| dice.once_in(2))
}

/// A case of a part of a product that is added to something, and their sum to a residual. The part
/// is small, because the product is rounded three times.
fn residual(
    draw: &Draw,
    case: OpCase,
    dtype: DType,
    (width, _): (usize, f64),
    product: Near,
) -> OpCase {
    let (tokens, alpha) = (case.tokens as usize, draw.or(-0.1, Dice::factor));
    let [added, residual] = [4, 5].map(|seed| draw.numbers(tokens * width, dtype, seed));
    let near = summed(&product, dtype, alpha, Some(&added));
    let near = summed(&near, dtype, 1.0, Some(&residual));
    let case = finished(case, 3, alpha);
    let case = case.input(&rows(width), dtype, &added);
    let case = case.input(&rows(width), dtype, &residual);
    let case = case.output(&rows(width), dtype, near);
    if is_in_place(draw, tokens) {
        case.in_place_of(1)
    } else {
        case
    }
}

/// Makes the output of a product of that dtype and width, times a factor.
pub(super) type ProductFinish = fn(&Draw, OpCase, DType, (usize, f64), Near) -> OpCase;

/// `linear`: sums of M products, and the bias where T is odd.
pub(super) fn linear(draw: &Draw, finish: ProductFinish) -> Vec<OpCase> {
    each(draw, Layouts::All, |dtype, [t, n, m], weight, name| {
        let x = draw.numbers(t * m, dtype, 1);
        let bias = bias(draw, t).then(|| draw.numbers(n, weight.dtype, 3));
        let (w, b) = (&weight.values, bias.as_deref());
        let absolute_bias = b.map(absolute);
        let of = oracle::linear;
        let magnitudes = of(
            &absolute(&x),
            &absolute(w),
            absolute_bias.as_deref(),
            [n, m],
        );
        let mut product = Near::relative(of(&x, w, b, [n, m]), &magnitudes, terms(m, 1));
        weight.allow_rounding(dtype, &mut product.bounds, |each| {
            of(&each(&x), &each(w), None, [n, m])
        });
        let case = OpCase::new("linear", t, name).input(&rows(m), dtype, &x);
        let case = weight.put(case, &[n, m]);
        let case = match b {
            None => case,
            Some(b) => case.param(&[n], weight.dtype, b),
        };
        let alpha = factor(draw, t, -0.3, Dice::factor);
        finish(draw, case, dtype, (n, alpha), product)
    })
}

/// `linear_input_backward`: sums of N products.
pub(super) fn linear_input_backward(
    draw: &Draw,
    layouts: Layouts,
    finish: ProductFinish,
) -> Vec<OpCase> {
    each(draw, layouts, |dtype, [t, n, m], weight, name| {
        let dy = draw.numbers(t * n, dtype, 1);
        let of = oracle::linear_input_backward;
        let magnitudes = of(&absolute(&dy), &absolute(&weight.values), [n, m]);
        let values = of(&dy, &weight.values, [n, m]);
        let mut product = Near::relative(values, &magnitudes, terms(n, 0));
        weight.allow_rounding(dtype, &mut product.bounds, |each| {
            of(&each(&dy), &each(&weight.values), [n, m])
        });
        let case = OpCase::new("linear_input_backward", t, name).input(&rows(n), dtype, &dy);
        let case = weight.put(case, &[n, m]);
        let alpha = factor(draw, t, -4.0, Dice::power);
        finish(draw, case, dtype, (m, alpha), product)
    })
}

/// `linear_weight_backward`: what the gradient holds, and the sums of T products, times a power of
/// two, on top of it.
pub(super) fn weight_gradient(
    draw: &Draw,
    [dy, x]: [&[f64]; 2],
    [t, n, m]: [usize; 3],
    alpha: f64,
) -> (Vec<f64>, Near) {
    let start = draw.numbers(n * m, DType::F32, 3);
    let of = oracle::linear_weight_backward;
    let magnitudes = of(&absolute(dy), &absolute(x), [n, m]);
    let magnitudes = oracle::add(&absolute(&start), &magnitudes, alpha.abs());
    let values = oracle::add(&start, &of(dy, x, [n, m]), alpha);
    (start, Near::relative(values, &magnitudes, terms(t, 1)))
}

fn linear_weight_backward(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for [t, n, m] in draw.shapes(&GRADIENT_SHAPES, Dice::product) {
            let (dy, x) = (draw.numbers(t * n, dtype, 1), draw.numbers(t * m, dtype, 2));
            let alpha = factor(draw, t, if n < m { 0.5 } else { -2.0 }, Dice::power);
            let (start, expected) = weight_gradient(draw, [&dy, &x], [t, n, m], alpha);
            let name = format!("{dtype}, T {t}, N {n}, M {m}, alpha {alpha}");
            let case = OpCase::new("linear_weight_backward", t, name);
            let case = case.input(&rows(n), dtype, &dy).input(&rows(m), dtype, &x);
            let case = finished(case, VERSION, alpha);
            cases.push(case.updated(&fixed([n, m]), DType::F32, &start, expected));
        }
    }
    cases
}

/// The cases of `linear_input_backward` over dense weights, with x and the weight's gradient.
fn both_backward(draw: &Draw) -> Vec<OpCase> {
    let cases = linear_input_backward(draw, Layouts::Dense, sum);
    let both = cases.into_iter().map(|case| {
        let [n, m] = [0, 1].map(|axis| case.request.params[0].shape[axis] as usize);
        let (t, dtype) = (case.tokens as usize, case.request.inputs[0].dtype);
        let alpha = case.request.attributes.optional_number("alpha");
        let (dy, x) = (draw.numbers(t * n, dtype, 1), draw.numbers(t * m, dtype, 2));
        let (start, near) = weight_gradient(draw, [&dy, &x], [t, n, m], alpha.unwrap_or(1.0));
        let case = case.version(3).input(&rows(m), dtype, &x);
        let mut case = case.updated(&fixed([n, m]), DType::F32, &start, near);
        // What is added is the last input.
        case.inputs[1..].reverse();
        case.request.inputs[1..].reverse();
        case.in_place_of = case.in_place_of.map(|index| index + 1);
        case
    });
    both.collect()
}
