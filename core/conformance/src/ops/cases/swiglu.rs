//! Cases of `swiglu`, `geglu_tanh` and their gradients.

use espalier_interface::DType;
use espalier_interface::op::{GELU_CUBE, GELU_SLOPE};

use super::{COMPUTE, ROWS, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle::{self, sigmoid};
use crate::ops::rounding::{LEAST, U, nearest};

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.swiglu",
        asserts: "silu(gate) up",
        cases: swiglu,
    },
    OpCheck {
        name: "op.swiglu_backward",
        asserts: "the gradients of gate and up",
        cases: swiglu_backward,
    },
    OpCheck {
        name: "op.geglu_tanh",
        asserts: "gelu(gate) up, by the hyperbolic tangent",
        cases: geglu_tanh,
    },
    OpCheck {
        name: "op.geglu_tanh_backward",
        asserts: "the gradients of gate and up",
        cases: geglu_tanh_backward,
    },
];

/// Gates, some of which are beyond what `e^x` holds in f32.
pub(super) fn gates(draw: &Draw, n: usize, dtype: DType) -> Vec<f64> {
    let mut gates = draw.numbers(n, dtype, 1);
    let extremes = [-120.0, 95.0, -89.5, 20.0, -30.0, 0.0];
    for (gate, extreme) in gates.iter_mut().skip(1).step_by(3).zip(extremes) {
        *gate = nearest(dtype, extreme);
    }
    gates
}

fn each(draw: &Draw, case: impl Fn(DType, [usize; 2], String) -> OpCase) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for [t, f] in draw.shapes(&ROWS, Dice::rows) {
            cases.push(case(dtype, [t, f], format!("{dtype}, T {t}, F {f}")));
        }
    }
    cases
}

/// The bounds of numbers that are `s` times something: relative, and where `s` is smaller than the
/// least normal number, which may be taken as zero.
fn near(values: Vec<f64>, sizes: &[f64], error: f64, beside: impl Fn(usize) -> f64) -> Near {
    let bounds = sizes.iter().enumerate();
    let bounds = bounds.map(|(i, size)| error * size.abs() + LEAST * beside(i).abs());
    Near::new(values, bounds.collect())
}

/// `swiglu`: `e^-g` to 4 u, a sum, a quotient and two products: 8 u.
fn swiglu(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, f], name| {
        let (gate, up) = (gates(draw, t * f, dtype), draw.numbers(t * f, dtype, 2));
        let values = oracle::swiglu(&gate, &up);
        let expected = near(values.clone(), &values, 8.0 * U, |i| gate[i] * up[i]);
        let case = OpCase::new("swiglu", t, name).input(&rows(f), dtype, &gate);
        let case = case.input(&rows(f), dtype, &up);
        case.output(&rows(f), dtype, expected)
    })
}

/// `swiglu_backward`: `1 - s` errs by 7 u of 1, which the gate multiplies; with the other roundings
/// 20 u of `dy u s (1 + |g|)` for dgate. For dup as `swiglu`.
fn swiglu_backward(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, f], name| {
        let gate = gates(draw, t * f, dtype);
        let [up, dy] = [2, 3].map(|seed| draw.numbers(t * f, dtype, seed));
        let [dgate, dup] = oracle::swiglu_backward(&dy, &gate, &up);
        let size = |i: usize| (dy[i] * up[i]).abs() * sigmoid(gate[i]) * (1.0 + gate[i].abs());
        let sizes: Vec<f64> = (0..t * f).map(size).collect();
        let slope = |i: usize| dy[i] * up[i] * (1.0 + gate[i].abs());
        let dgate = near(dgate, &sizes, 20.0 * U, slope);
        let dup = near(dup.clone(), &dup, 8.0 * U, |i| dy[i] * gate[i]);
        let case = OpCase::new("swiglu_backward", t, name).input(&rows(f), dtype, &dy);
        let case = case.input(&rows(f), dtype, &gate);
        let case = case.input(&rows(f), dtype, &up);
        case.output(&rows(f), dtype, dgate)
            .output(&rows(f), dtype, dup)
    })
}

/// The argument of GELU's sigmoid: `2 k (g + c g^3)`.
pub(super) fn argument(g: f64) -> f64 {
    GELU_SLOPE * (g + GELU_CUBE * g.powi(3))
}

/// The relative error of GELU's sigmoid: `z` is good to 7 u, which a sigmoid takes by `|z| (1 -
/// s)`; its `e^-z` to 4 u, a sum and a quotient.
pub(super) fn error_of_sigmoid(g: f64) -> f64 {
    let z = argument(g);
    (6.0 + 7.0 * z.abs() * (1.0 - sigmoid(z))) * U
}

/// `geglu_tanh`: the sigmoid and two products.
fn geglu_tanh(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, f], name| {
        let (gate, up) = (gates(draw, t * f, dtype), draw.numbers(t * f, dtype, 2));
        let values = oracle::geglu_tanh(&gate, &up);
        let bound = |i: usize| {
            (error_of_sigmoid(gate[i]) + 2.0 * U) * values[i].abs()
                + LEAST * (gate[i] * up[i]).abs()
        };
        let bounds = (0..t * f).map(bound).collect();
        let case = OpCase::new("geglu_tanh", t, name).input(&rows(f), dtype, &gate);
        let case = case.input(&rows(f), dtype, &up);
        case.output(&rows(f), dtype, Near::new(values, bounds))
    })
}

/// The error of `1 - s`: where 1 and `e^-z` is 1 in f32, s is 1; else that of the sigmoid, whose
/// sum and quotient round by u of 1 each, and one more.
pub(super) fn error_of_rest(g: f64) -> f64 {
    let z = argument(g);
    let rest = sigmoid(-z);
    if rest < U / 2.0 {
        return rest;
    }
    (3.0 + rest * (4.0 + 7.0 * z.abs())) * U
}

/// `geglu_tanh_backward`: `1 + g z' (1 - s)` with `g z'` good to 8 u, the error of `1 - s`, and
/// further roundings: 16 u of it and the sigmoid's error, all times `dy u s`. For dup as
/// `geglu_tanh`.
fn geglu_tanh_backward(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, f], name| {
        let gate = gates(draw, t * f, dtype);
        let [up, dy] = [2, 3].map(|seed| draw.numbers(t * f, dtype, seed));
        let [dgate, dup] = oracle::geglu_tanh_backward(&dy, &gate, &up);
        let of_gate = |i: usize| {
            let (g, z) = (gate[i], argument(gate[i]));
            let steep = GELU_SLOPE * (g.abs() + 3.0 * GELU_CUBE * g.abs().powi(3));
            let slope = 1.0 + steep * sigmoid(-z);
            let error = slope * (16.0 * U + error_of_sigmoid(g)) + steep * error_of_rest(g);
            (dy[i] * up[i]).abs() * (error * sigmoid(z) + LEAST * (1.0 + steep))
        };
        let of_up = |i: usize| {
            let least = LEAST * (dy[i] * gate[i]).abs();
            (error_of_sigmoid(gate[i]) + 2.0 * U) * dup[i].abs() + least
        };
        let [of_gate, of_up] = [
            (0..t * f).map(of_gate).collect(),
            (0..t * f).map(of_up).collect(),
        ];
        let case = OpCase::new("geglu_tanh_backward", t, name).input(&rows(f), dtype, &dy);
        let case = case.input(&rows(f), dtype, &gate);
        let case = case.input(&rows(f), dtype, &up);
        let case = case.output(&rows(f), dtype, Near::new(dgate, of_gate));
        case.output(&rows(f), dtype, Near::new(dup.clone(), of_up))
    })
}
