//! Cases of `gelu` and its gradient, in both forms.

use espalier_interface::DType;
use espalier_interface::op::{GELU_CUBE, GELU_SLOPE, GeluForm};

use super::swiglu::{argument, error_of_rest, error_of_sigmoid, gates};
use super::{COMPUTE, ROWS, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle::{self, gelu_of, normal_density, sigmoid};
use crate::ops::rounding::{ERROR_OF_ERF, LEAST, U};

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.gelu",
        asserts: "x P(x), exact and by the hyperbolic tangent",
        cases: gelu,
    },
    OpCheck {
        name: "op.gelu_backward",
        asserts: "dy (P(x) + x P'(x))",
        cases: gelu_backward,
    },
];

fn each(draw: &Draw, case: impl Fn(GeluForm, DType, [usize; 2], String) -> OpCase) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for form in draw.each(&GeluForm::ALL) {
        for dtype in draw.each(&COMPUTE) {
            for [t, f] in draw.shapes(&ROWS, Dice::rows) {
                let name = format!("{}, {dtype}, T {t}, F {f}", form.name());
                let case = case(form, dtype, [t, f], name);
                cases.push(case.attribute("approximate", form.name()));
            }
        }
    }
    cases
}

/// The error of `(1 + erf(x / sqrt(2))) / 2`: the argument is good to 2 u, by which the error
/// function moves by less than 2 u; its own error, and two sums' roundings.
const ERROR_OF_HALF: f64 = ERROR_OF_ERF / 2.0 + 3.0 * U;

/// `gelu`: `P(x)` and two products. What is far below 0 may lose its digits in `1 + erf(..)`.
fn gelu(draw: &Draw) -> Vec<OpCase> {
    each(draw, |form, dtype, [t, f], name| {
        let x = gates(draw, t * f, dtype);
        let values = oracle::gelu(form, &x);
        let bound = |i: usize| match form {
            GeluForm::Exact => ERROR_OF_HALF * x[i].abs() + 2.0 * U * values[i].abs(),
            GeluForm::Tanh => {
                (error_of_sigmoid(x[i]) + 2.0 * U) * values[i].abs() + LEAST * x[i].abs()
            }
        };
        let expected = Near::new(values.clone(), (0..t * f).map(bound).collect());
        let case = OpCase::new("gelu", t, name).input(&rows(f), dtype, &x);
        case.output(&rows(f), dtype, expected)
    })
}

/// The error of the derivative. Exact: that of `P(x)`; of `x P'(x)`, whose exponent is good to 3 u
/// of itself and its `e^x` to 4 u, with three products; and of the sum. By the hyperbolic tangent:
/// as `geglu_tanh_backward`.
fn error_of_slope(form: GeluForm, x: f64) -> f64 {
    let slope = gelu_of(form, x)[1];
    match form {
        GeluForm::Exact => {
            let rise = (x * normal_density(x)).abs();
            ERROR_OF_HALF + rise * (9.0 + 1.5 * x * x) * U + U * slope.abs() + LEAST * x.abs()
        }
        GeluForm::Tanh => {
            let z = argument(x);
            let steep = GELU_SLOPE * (x.abs() + 3.0 * GELU_CUBE * x.abs().powi(3));
            let slope = 1.0 + steep * sigmoid(-z);
            let error = slope * (16.0 * U + error_of_sigmoid(x)) + steep * error_of_rest(x);
            error * sigmoid(z) + LEAST * (1.0 + steep)
        }
    }
}

/// `gelu_backward`: the derivative and a product.
fn gelu_backward(draw: &Draw) -> Vec<OpCase> {
    each(draw, |form, dtype, [t, f], name| {
        let (x, dy) = (gates(draw, t * f, dtype), draw.numbers(t * f, dtype, 3));
        let values = oracle::gelu_backward(form, &dy, &x);
        let bound = |i: usize| dy[i].abs() * error_of_slope(form, x[i]) + 2.0 * U * values[i].abs();
        let expected = Near::new(values.clone(), (0..t * f).map(bound).collect());
        let case = OpCase::new("gelu_backward", t, name).input(&rows(f), dtype, &dy);
        let case = case.input(&rows(f), dtype, &x);
        case.output(&rows(f), dtype, expected)
    })
}
