//! Cases of `rms_norm_offset` and its gradients, in the shapes of `rms_norm`.
//!
//! Weights near the offset's negative leave a small factor, whose error is that of `offset` and
//! `w`: bounds are in terms of the sum of their sizes, so that `n w + o n` passes as `n (o + w)`.

use espalier_interface::DType;

use super::norm::{each, eps, error_of_inverse};
use super::{fixed, rows, terms};
use crate::ops::case::{Near, OpCase};
use crate::ops::draw::Draw;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle::{self, inverse_rms};
use crate::ops::rounding::U;

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.rms_norm_offset",
        asserts: "x r (offset + w), of rows and of heads, rounded once",
        cases: rms_norm_offset,
    },
    OpCheck {
        name: "op.rms_norm_offset_backward",
        asserts: "r (g - x r^2 mean(g x)) with g = dy (offset + w)",
        cases: rms_norm_offset_backward,
    },
    OpCheck {
        name: "op.rms_norm_offset_weight_backward",
        asserts: "the sum of dy x r is added to the gradient",
        cases: rms_norm_offset_weight_backward,
    },
];

/// That of Gemma, and one that f32 does not hold.
fn offset(draw: &Draw, tokens: usize) -> f64 {
    let usual = if tokens == 17 { 0.7 } else { 1.0 };
    draw.or(usual, |dice| dice.scale(1e-2, 10.0))
}

/// `rms_norm_offset`: the root mean square; the offset's rounding, a sum, and two products.
fn rms_norm_offset(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d, group], stored, name| {
        let (eps, offset) = (eps(draw), offset(draw, t));
        let (x, w) = (
            draw.numbers(t * d, dtype, 1),
            draw.numbers(group, stored, 2),
        );
        let values = oracle::rms_norm_offset(&x, &w, eps, offset);
        let error = error_of_inverse(group) + 4.0 * U;
        let mut bounds = Vec::with_capacity(values.len());
        for x in x.chunks_exact(group) {
            let r = inverse_rms(x, eps);
            let size = |(x, w): (&f64, &f64)| error * (x * r).abs() * (offset + w.abs());
            bounds.extend(x.iter().zip(&w).map(size));
        }
        let case = OpCase::new("rms_norm_offset", t, name).input(&rows(d), dtype, &x);
        let case = case.param(&[group], stored, &w).attribute("eps", eps);
        let case = case.attribute("offset", offset);
        case.output(&rows(d), dtype, Near::new(values, bounds))
    })
}

/// `rms_norm_offset_backward`: as `rms_norm_backward`, with two more roundings in g.
fn rms_norm_offset_backward(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d, group], stored, name| {
        let (eps, offset) = (eps(draw), offset(draw, t));
        let [dy, x] = [1, 2].map(|seed| draw.numbers(t * d, dtype, seed));
        let w = draw.numbers(group, stored, 3);
        let values = oracle::rms_norm_offset_backward(&dy, &x, &w, eps, offset);
        let error = 3.0 * error_of_inverse(group) + terms(group, 10);
        let mut bounds = Vec::with_capacity(values.len());
        for (dy, x) in dy.chunks_exact(group).zip(x.chunks_exact(group)) {
            let r = inverse_rms(x, eps);
            let g: Vec<f64> = dy
                .iter()
                .zip(&w)
                .map(|(dy, w)| dy.abs() * (offset + w.abs()))
                .collect();
            let products = g.iter().zip(x).map(|(g, x)| g * x.abs());
            let mean = products.sum::<f64>() / group as f64;
            let size = |(g, x): (&f64, &f64)| error * (g * r + x.abs() * r.powi(3) * mean);
            bounds.extend(g.iter().zip(x).map(size));
        }
        let case = OpCase::new("rms_norm_offset_backward", t, name);
        let case = case.input(&rows(d), dtype, &dy).input(&rows(d), dtype, &x);
        let case = case.param(&[group], stored, &w).attribute("eps", eps);
        let case = case.attribute("offset", offset);
        case.output(&rows(d), dtype, Near::new(values, bounds))
    })
}

/// `rms_norm_offset_weight_backward`: a sum over all rows of products of three, added to the
/// earlier content. The offset does not matter.
fn rms_norm_offset_weight_backward(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d, group], _, name| {
        let (eps, offset) = (eps(draw), offset(draw, t));
        let [dy, x] = [1, 2].map(|seed| draw.numbers(t * d, dtype, seed));
        let start = draw.numbers(group, DType::F32, 3);
        let sums = oracle::rms_norm_weight_backward(&dy, &x, group, eps, |normal| normal);
        let values = oracle::add(&start, &sums, 1.0);
        let sum_error = terms(t * d / group, 3);
        let mut bounds: Vec<f64> = start.iter().map(|start| sum_error * start.abs()).collect();
        for (dy, x) in dy.chunks_exact(group).zip(x.chunks_exact(group)) {
            let r = inverse_rms(x, eps);
            for (i, bound) in bounds.iter_mut().enumerate() {
                *bound += (sum_error + error_of_inverse(group)) * (dy[i] * x[i] * r).abs();
            }
        }
        let case = OpCase::new("rms_norm_offset_weight_backward", t, name);
        let case = case.input(&rows(d), dtype, &dy).input(&rows(d), dtype, &x);
        let case = case.attribute("eps", eps).attribute("offset", offset);
        let expected = Near::new(values, bounds);
        case.updated(&fixed([group]), DType::F32, &start, expected)
    })
}
