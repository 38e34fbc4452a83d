//! Cases of products to which a low-rank product is added, and of their gradients.
//!
//! Both products are rounded to the output's dtype before they are added: in bf16 half a step of
//! each is allowed.

use espalier_interface::DType;

use super::fused::{
    finished, linear, linear_input_backward, rounded_bounds, summed, weight_gradient,
};
use super::linear::{Layouts, Weight};
use super::{fixed, rows, terms};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::numbers::absolute;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle;

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.linear.4",
        asserts: "x W^T + b + alpha h up^T over dense and packed weights, also with a residual",
        cases: |draw| linear(draw, forward),
    },
    OpCheck {
        name: "op.linear_input_backward.4",
        asserts: "added + dy W + alpha dh down, and alpha dh^T x is added to the gradient",
        cases: |draw| linear_input_backward(draw, Layouts::All, backward),
    },
];

/// The version of these ops.
const VERSION: u32 = 4;

/// The rank for T tokens: one, fewer and more than a vector, and more than a task of `cpu` adds.
fn rank(draw: &Draw, tokens: usize) -> usize {
    let kit = match tokens {
        1 => 1,
        3 => 16,
        17 => 7,
        65 => 33,
        _ => 300,
    };
    draw.or_else(|| kit, |dice| dice.one_of(&[1, 2, 8, 16, 40, 64, 130, 260]))
}

/// A result, and `alpha` times another one on top of it, both rounded to `dtype` first.
fn both(first: &Near, second: &Near, dtype: DType, alpha: f64) -> Near {
    let mut near = summed(second, dtype, alpha, Some(&first.values));
    near.bounds = oracle::add(&near.bounds, &rounded_bounds(first, dtype), 1.0);
    near
}

/// A low-rank weight, h, and their product by `of`. It is small beside the other one, because both
/// are rounded.
fn low_rank(
    draw: &Draw,
    dtype: DType,
    [t, r, elements]: [usize; 3],
    of: impl Fn(&[f64], &[f64]) -> Vec<f64>,
) -> (Weight, Vec<f64>, Near) {
    let stored = draw.or(DType::F32, |dice| dice.one_of(&[DType::F32, dtype]));
    let weight = Weight::low_rank(draw, stored, elements);
    let h = oracle::scale(&draw.numbers(t * r, dtype, 7), 0.25);
    let magnitudes = of(&absolute(&h), &absolute(&weight.values));
    let mut near = Near::relative(of(&h, &weight.values), &magnitudes, terms(r, 0));
    weight.allow_rounding(dtype, &mut near.bounds, |each| {
        of(&each(&h), &each(&weight.values))
    });
    (weight, h, near)
}

/// A case with the param `weight` of that shape after the first one.
fn second_param(case: OpCase, weight: &Weight, shape: &[usize]) -> OpCase {
    let bias = case.request.params.len() > 1;
    let mut case = weight.put(case, shape);
    if bias {
        let ranges = case.params.len();
        case.params.swap(ranges - 1, ranges - 2);
        case.request.params.swap(1, 2);
        case.decoders.swap(1, 2);
    }
    case
}

fn forward(
    draw: &Draw,
    case: OpCase,
    dtype: DType,
    (n, alpha): (usize, f64),
    product: Near,
) -> OpCase {
    let t = case.tokens as usize;
    let r = rank(draw, t);
    let (up, h, narrow) = low_rank(draw, dtype, [t, r, n * r], |h, up| {
        oracle::linear(h, up, None, [n, r])
    });
    let near = both(&product, &narrow, dtype, alpha);
    let case = finished(case, VERSION, alpha).input(&rows(r), dtype, &h);
    let case = second_param(case, &up, &[n, r]);
    if !draw.or([17, 33].contains(&t), |dice| dice.once_in(2)) {
        return case.output(&rows(n), dtype, near);
    }
    let residual = draw.numbers(t * n, dtype, 5);
    let near = summed(&near, dtype, 1.0, Some(&residual));
    let case = case.input(&rows(n), dtype, &residual);
    case.output(&rows(n), dtype, near)
}

fn backward(
    draw: &Draw,
    case: OpCase,
    dtype: DType,
    (m, alpha): (usize, f64),
    product: Near,
) -> OpCase {
    let t = case.tokens as usize;
    let r = rank(draw, t);
    let (down, dh, narrow) = low_rank(draw, dtype, [t, r, r * m], |dh, down| {
        oracle::linear_input_backward(dh, down, [r, m])
    });
    let x = draw.numbers(t * m, dtype, 8);
    let is_alone = draw.or([3, 65].contains(&t), |dice: &Dice| dice.once_in(4));
    let added = (!is_alone).then(|| draw.numbers(t * m, dtype, 4));
    let narrow = summed(&narrow, dtype, alpha, added.as_deref());
    let near = both(&narrow, &product, dtype, 1.0);
    let (start, gradient) = weight_gradient(draw, [&dh, &x], [t, r, m], alpha);
    let case = finished(case, VERSION, alpha)
        .input(&rows(r), dtype, &dh)
        .input(&rows(m), dtype, &x);
    let case = second_param(case, &down, &[r, m]);
    let case = match &added {
        None => case,
        Some(added) => case.input(&rows(m), dtype, added),
    };
    let case = case.output(&rows(m), dtype, near);
    let case = case.updated(&fixed([r, m]), DType::F32, &start, gradient);
    if added.is_some() && draw.or([17, 33].contains(&t), |dice| dice.once_in(2)) {
        case.in_place_of(3)
    } else {
        case
    }
}
