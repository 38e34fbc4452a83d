//! Functions of one number, `exp`, `log`, `sigmoid`, `tanh`, `erf` and `rsqrt`: each in f64,
//! and its cases. They know nothing of kernels; torch's golden values are compared with them.

use espalier_interface::DType;

use super::case::{Near, OpCase};
use super::cases::{COMPUTE, ROWS, rows};
use super::dice::Dice;
use super::draw::Draw;
use super::op_check::OpCheck;
use super::oracle::erf;
use super::rounding::{ERROR_OF_ERF, U, nearest};

/// Their checks.
pub(super) const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.exp",
        asserts: "e^x",
        cases: |draw| each(draw, "exp", |x| 18.0 * x, exp, 4.0 * U),
    },
    OpCheck {
        name: "op.log",
        asserts: "ln x",
        // Numbers apart from 1, near which the result is small.
        cases: |draw| each(draw, "log", |x| (5.0 * x).exp() + 1.25, log, 4.0 * U),
    },
    OpCheck {
        name: "op.sigmoid",
        asserts: "1 / (1 + e^-x)",
        // `e^-x` to 4 u, a sum and a quotient; of numbers beyond what `e^x` holds in f32, too.
        cases: |draw| each(draw, "sigmoid", |x| 40.0 * x, sigmoid, 6.0 * U),
    },
    OpCheck {
        name: "op.tanh",
        asserts: "the hyperbolic tangent",
        cases: |draw| each(draw, "tanh", |x| 12.0 * x, tanh, 4.0 * U),
    },
    OpCheck {
        name: "op.erf",
        asserts: "the error function",
        cases: erf_cases,
    },
    OpCheck {
        name: "op.rsqrt",
        asserts: "1 / sqrt(alpha x + beta)",
        cases: rsqrt_cases,
    },
];

/// `e^x`.
pub fn exp(x: f64) -> f64 {
    x.exp()
}

/// `ln x`.
pub fn log(x: f64) -> f64 {
    x.ln()
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The hyperbolic tangent.
pub fn tanh(x: f64) -> f64 {
    x.tanh()
}

/// `1 / sqrt(alpha x + beta)`.
pub fn rsqrt(x: f64, [alpha, beta]: [f64; 2]) -> f64 {
    1.0 / (alpha * x + beta).sqrt()
}

/// A case for each shape and compute dtype; `input` makes the function's argument of a number in
/// [-1, 1), and `error` bounds the relative error.
fn each(
    draw: &Draw,
    op: &str,
    input: impl Fn(f64) -> f64,
    function: impl Fn(f64) -> f64,
    error: f64,
) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for [t, d] in draw.shapes(&ROWS, Dice::rows) {
            let x = draw.normal(t * d, dtype, 1);
            let x: Vec<f64> = x.iter().map(|&x| nearest(dtype, input(x))).collect();
            let values: Vec<f64> = x.iter().map(|&x| function(x)).collect();
            let expected = Near::relative(values.clone(), &values, error);
            let case = OpCase::new(op, t, format!("{dtype}, T {t}, D {d}"));
            let case = case.input(&rows(d), dtype, &x);
            cases.push(case.output(&rows(d), dtype, expected));
        }
    }
    cases
}

/// `erf`, whose error is not relative.
fn erf_cases(draw: &Draw) -> Vec<OpCase> {
    let mut cases = each(draw, "erf", |x| 4.0 * x, erf, 0.0);
    let outputs = cases.iter_mut().flat_map(|case| &mut case.outputs);
    for bound in outputs.flat_map(|output| &mut output.expected.bounds) {
        *bound = ERROR_OF_ERF;
    }
    cases
}

/// `rsqrt`: alpha and beta are rounded, a product and a sum of positive numbers, of which the root
/// halves the errors, then the root and the quotient: 4 u.
fn rsqrt_cases(draw: &Draw) -> Vec<OpCase> {
    let factors @ [alpha, beta] = draw.or([1.0 / 3.0, 1e-5], |dice| {
        [dice.scale(1e-3, 10.0), dice.scale(1e-8, 1.0)]
    });
    let mut cases = each(draw, "rsqrt", |x| x * x, |x| rsqrt(x, factors), 4.0 * U);
    for case in &mut cases {
        let attributes = std::mem::take(&mut case.request.attributes);
        case.request.attributes = attributes.with("alpha", alpha).with("beta", beta);
    }
    let (x, dtype) = ([4.0, 0.25, 1.0], DType::F32);
    let case = OpCase::new("rsqrt", 1, "f32, without attributes".to_owned());
    let case = case.input(&rows(3), dtype, &x);
    let values = x.map(|x| rsqrt(x, [1.0, 0.0])).to_vec();
    let expected = Near::relative(values.clone(), &values, 2.0 * U);
    cases.push(case.output(&rows(3), dtype, expected));
    cases
}
