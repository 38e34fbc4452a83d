//! Cases of `exp`, `log`, `sigmoid` and `rsqrt`.

use espalier_interface::DType;

use super::{COMPUTE, ROWS, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::numbers::drawn;
use crate::ops::oracle;
use crate::ops::rounding::{U, nearest};

/// A case for each shape and compute dtype; `input` changes a number of the input.
fn each(
    op: &str,
    input: impl Fn(f64) -> f64,
    values: impl Fn(&[f64]) -> Vec<f64>,
    error: f64,
) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in COMPUTE {
        for [t, d] in ROWS {
            let x = drawn(t * d, dtype, 1);
            let x: Vec<f64> = x.iter().map(|&x| nearest(dtype, input(x))).collect();
            let values = values(&x);
            let expected = Near::relative(values.clone(), &values, error);
            let case = OpCase::new(op, t, format!("{dtype}, T {t}, D {d}"));
            let case = case.input(&rows(d), dtype, &x);
            cases.push(case.output(&rows(d), dtype, expected));
        }
    }
    cases
}

/// `exp`: good to 4 u, also where the result is near the largest and the least number.
pub fn exp() -> Vec<OpCase> {
    each("exp", |x| 18.0 * x, oracle::exp, 4.0 * U)
}

/// `log`: good to 4 u, of numbers apart from 1, near which the result is small.
pub fn log() -> Vec<OpCase> {
    each("log", |x| (5.0 * x).exp() + 1.25, oracle::log, 4.0 * U)
}

/// `sigmoid`: `e^-x` to 4 u, a sum and a quotient; of numbers beyond what `e^x` holds in f32, too.
pub fn sigmoid() -> Vec<OpCase> {
    each("sigmoid", |x| 40.0 * x, oracle::sigmoids, 6.0 * U)
}

/// `rsqrt`: alpha and beta are rounded, a product and a sum of positive numbers, of which the root
/// halves the errors, then the root and the quotient: 4 u.
pub fn rsqrt() -> Vec<OpCase> {
    let (alpha, beta) = (1.0 / 3.0, 1e-5);
    let mut cases = each(
        "rsqrt",
        |x| x * x,
        |x| oracle::rsqrt(x, alpha, beta),
        4.0 * U,
    );
    for case in &mut cases {
        let attributes = std::mem::take(&mut case.request.attributes);
        case.request.attributes = attributes.with("alpha", alpha).with("beta", beta);
    }
    let (x, dtype) = ([4.0, 0.25, 1.0], DType::F32);
    let case = OpCase::new("rsqrt", 1, "f32, without attributes".to_owned());
    let case = case.input(&rows(3), dtype, &x);
    let values = oracle::rsqrt(&x, 1.0, 0.0);
    let expected = Near::relative(values.clone(), &values, 2.0 * U);
    cases.push(case.output(&rows(3), dtype, expected));
    cases
}
