//! Cases of `layer_norm` and its gradients, of rows around 0 and, with 17 tokens, around 2.5.

use espalier_interface::DType;

use super::{COMPUTE, STORED, fixed, rows, terms};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle::{self, moments};
use crate::ops::rounding::{U, nearest};

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.layer_norm",
        asserts: "(x - m) r w + b, rounded once",
        cases: layer_norm,
    },
    OpCheck {
        name: "op.layer_norm_backward",
        asserts: "r (g - mean(g) - n mean(g n))",
        cases: layer_norm_backward,
    },
    OpCheck {
        name: "op.layer_norm_weight_backward",
        asserts: "the sum of dy n is added to the gradient",
        cases: layer_norm_weight_backward,
    },
];

/// `[T, D]`.
const SHAPES: [[usize; 2]; 7] = [
    [0, 5],
    [1, 1],
    [3, 17],
    [17, 65],
    [65, 33],
    [5, 96],
    [2, 4099],
];
const EPS: f64 = 1e-5;

/// A launch's dtypes and numbers.
struct Drawn {
    dtype: DType,
    stored: DType,
    size: [usize; 2],
    eps: f64,
    x: Vec<f64>,
    name: String,
}

fn each(draw: &Draw, case: impl Fn(Drawn) -> OpCase) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for (index, size) in draw.shapes(&SHAPES, Dice::rows).into_iter().enumerate() {
            let [t, d] = size;
            let stored = draw.or_one_of(STORED[index % STORED.len()], &STORED);
            let level = draw.or(if t == 17 { 2.5 } else { 0.0 }, |dice| {
                dice.scale(1e-2, 4.0)
            });
            let x = draw.numbers(t * d, dtype, 1).into_iter();
            cases.push(case(Drawn {
                dtype,
                stored,
                size,
                eps: draw.or(EPS, |dice| dice.scale(1e-7, 1e-2)),
                x: x.map(|x| nearest(dtype, x + level)).collect(),
                name: format!("{dtype}, T {t}, D {d}, weight {stored}"),
            }));
        }
    }
    cases
}

/// A row, and the errors of what is found of it.
struct Row {
    /// `r`.
    inverse: f64,
    /// `n`.
    normal: Vec<f64>,
    /// The relative error of `r`.
    of_inverse: f64,
    /// The errors of `n`.
    of_normal: Vec<f64>,
}

/// The mean is a sum of D terms and a quotient. An error of it moves the mean of the squares by its
/// square, since the differences from the mean add up to nothing; these are rounded, squared and
/// summed, and the rest is that of `rms_norm`. `n` is a difference and a product.
fn row(x: &[f64], eps: f64) -> Row {
    let count = x.len();
    let [mean, inverse] = moments(x, eps);
    let size = x.iter().map(|x| x.abs()).sum::<f64>() / count as f64;
    let of_mean = terms(count, 1) * size;
    let of_inverse = terms(count, 5) / 2.0 + (of_mean * inverse).powi(2) / 2.0 + 2.0 * U;
    let normal: Vec<f64> = x.iter().map(|x| (x - mean) * inverse).collect();
    let errors = normal.iter();
    let of_normal = errors.map(|n| of_mean * inverse + n.abs() * (of_inverse + 2.0 * U));
    Row {
        inverse,
        of_normal: of_normal.collect(),
        of_inverse,
        normal,
    }
}

/// `layer_norm`: `n`, a product and a sum.
fn layer_norm(draw: &Draw) -> Vec<OpCase> {
    each(draw, |drawn| {
        let Drawn {
            dtype,
            stored,
            size: [t, d],
            eps,
            x,
            name,
        } = drawn;
        let w = draw.numbers(d, stored, 2);
        // A launch of few tokens has no bias, and one of bf16 has one of another dtype.
        let dtype_of_bias = if dtype == DType::BF16 {
            DType::F32
        } else {
            stored
        };
        let has_bias = draw.or(t != 3, |dice| dice.below(3) > 0);
        let b = has_bias.then(|| draw.numbers(d, dtype_of_bias, 3));
        let values = oracle::layer_norm(&x, &w, b.as_deref(), eps);
        let mut bounds = Vec::with_capacity(values.len());
        for x in x.chunks_exact(d) {
            let found = row(x, eps);
            for (i, w) in w.iter().enumerate() {
                let weighted = (found.normal[i] * w).abs();
                let value = values[bounds.len()].abs();
                bounds.push(found.of_normal[i] * w.abs() + U * (weighted + value));
            }
        }
        let case = OpCase::new("layer_norm", t, name).input(&rows(d), dtype, &x);
        let case = case.param(&[d], stored, &w).attribute("eps", eps);
        let case = match &b {
            Some(b) => case.param(&[d], dtype_of_bias, b),
            None => case,
        };
        case.output(&rows(d), dtype, Near::new(values, bounds))
    })
}

/// `layer_norm_backward`: two means of D products, `n`, a product and two sums, and `r` times them.
fn layer_norm_backward(draw: &Draw) -> Vec<OpCase> {
    each(draw, |drawn| {
        let Drawn {
            dtype,
            stored,
            size: [t, d],
            eps,
            x,
            name,
        } = drawn;
        let w = draw.numbers(d, stored, 3);
        let dy = draw.numbers(t * d, dtype, 2);
        let values = oracle::layer_norm_backward(&dy, &x, &w, eps);
        let mut bounds = Vec::with_capacity(values.len());
        for (dy, x) in dy.chunks_exact(d).zip(x.chunks_exact(d)) {
            let found = row(x, eps);
            let g: Vec<f64> = dy.iter().zip(&w).map(|(dy, w)| (dy * w).abs()).collect();
            let mean = |of: &[f64]| oracle::mul(&g, of).iter().sum::<f64>() / d as f64;
            let sizes: Vec<f64> = found.normal.iter().map(|n| n.abs()).collect();
            let (level, pull) = (g.iter().sum::<f64>() / d as f64, mean(&sizes));
            let of_pull = mean(&found.of_normal);
            let error = found.of_inverse + terms(d, 10);
            for i in 0..d {
                let size = g[i] + level + sizes[i] * pull;
                let moved = found.of_normal[i] * pull + sizes[i] * of_pull;
                bounds.push(found.inverse * (error * size + moved));
            }
        }
        let case = OpCase::new("layer_norm_backward", t, name).input(&rows(d), dtype, &dy);
        let case = case.input(&rows(d), dtype, &x);
        let case = case.param(&[d], stored, &w).attribute("eps", eps);
        case.output(&rows(d), dtype, Near::new(values, bounds))
    })
}

/// `layer_norm_weight_backward`: a sum over all rows of products with `n`, added to the earlier
/// content.
fn layer_norm_weight_backward(draw: &Draw) -> Vec<OpCase> {
    each(draw, |drawn| {
        let Drawn {
            dtype,
            size: [t, d],
            eps,
            x,
            name,
            ..
        } = drawn;
        let dy = draw.numbers(t * d, dtype, 2);
        let start = draw.numbers(d, DType::F32, 3);
        let sums = oracle::layer_norm_weight_backward(&dy, &x, d, eps);
        let values = oracle::add(&start, &sums, 1.0);
        let sum_error = terms(t, 2);
        let mut bounds: Vec<f64> = start.iter().map(|start| sum_error * start.abs()).collect();
        for (dy, x) in dy.chunks_exact(d).zip(x.chunks_exact(d)) {
            let found = row(x, eps);
            for (i, bound) in bounds.iter_mut().enumerate() {
                let error = sum_error * found.normal[i].abs() + found.of_normal[i];
                *bound += error * dy[i].abs();
            }
        }
        let case = OpCase::new("layer_norm_weight_backward", t, name);
        let case = case.input(&rows(d), dtype, &dy).input(&rows(d), dtype, &x);
        let expected = Near::new(values, bounds);
        let case = case.attribute("eps", eps);
        case.updated(&fixed([d]), DType::F32, &start, expected)
    })
}
