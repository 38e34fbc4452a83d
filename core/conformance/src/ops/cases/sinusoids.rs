//! Cases of `sinusoids` and `swap_halves`.

use espalier_interface::DType;
use espalier_interface::graph::Dim;
use serde_json::json;

use super::{COMPUTE, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::numbers::integers;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle;
use crate::ops::rounding::{U, nearest};

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.sinusoids",
        asserts: "cosines and sines of multiples of positions",
        cases: sinusoids,
    },
    OpCheck {
        name: "op.swap_halves",
        asserts: "the halves of each head exchanged",
        cases: swap_halves,
    },
];

/// `[T, K]`.
const SHAPES: [[usize; 2]; 5] = [[0, 4], [1, 1], [3, 17], [17, 65], [65, 34]];

/// `sinusoids`: the angle is one rounding, which moves the function by `u a`; it is good to 4 u,
/// and times the amplitude.
fn sinusoids(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        let functions = [("cos", f64::cos as fn(f64) -> f64), ("sin", f64::sin)];
        for (name, function) in draw.each(&functions) {
            for [t, k] in draw.shapes(&SHAPES, Dice::rows) {
                let step = draw.or(7, |dice| dice.below(2000)) as i32;
                let positions: Vec<i32> = (0..t as i32).map(|i| step * i).collect();
                let base = draw.or(10_000.0, |dice| dice.scale(100.0, 1e6));
                let frequency = |i: usize| base.powf(-(i as f64) / k as f64);
                let frequencies = (0..k).map(|i| nearest(DType::F32, frequency(i)));
                let inv_freq: Vec<f64> = frequencies.collect();
                let amplitude = draw.numbers(k, DType::F32, 2);
                let values = oracle::sinusoids(&positions, &inv_freq, &amplitude, function);
                let bound = |at: usize| {
                    let angle = f64::from(positions[at / k]) * inv_freq[at % k];
                    amplitude[at % k].abs() * U * (angle + 6.0)
                };
                let bounds = (0..values.len()).map(bound).collect();
                let case = OpCase::new("sinusoids", t, format!("{dtype}, {name}, T {t}, K {k}"));
                let case = case.input(&[Dim::Tokens], DType::I32, &integers(&positions));
                let case = case.attribute("inv_freq", json!(inv_freq));
                let case = case.attribute("amplitude", json!(amplitude));
                let case = case.attribute("function", name);
                cases.push(case.output(&rows(k), dtype, Near::new(values, bounds)));
            }
        }
    }
    cases
}

/// `swap_halves`: copies, of whole and of partly rotated heads.
fn swap_halves(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        let kit = [
            [0, 1, 4, 2],
            [1, 1, 2, 1],
            [3, 5, 34, 17],
            [65, 3, 7, 2],
            [2, 9, 64, 32],
        ];
        let shapes = draw.shapes(&kit, |dice| {
            let head_dim = dice.extent(300).max(2);
            let half = dice.one_of(&[head_dim / 2, dice.between(1, head_dim / 2)]);
            [dice.tokens(140), dice.extent(9), head_dim, half]
        });
        for [t, heads, head_dim, half] in shapes {
            let x = draw.numbers(t * heads * head_dim, dtype, 1);
            let expected = Near::exact(oracle::swap_halves(&x, head_dim, half));
            let name = format!("{dtype}, T {t}, H {heads}, K {head_dim}, half {half}");
            let width = rows(heads * head_dim);
            let case = OpCase::new("swap_halves", t, name).input(&width, dtype, &x);
            let case = case.attribute("head_dim", head_dim).attribute("half", half);
            cases.push(case.output(&width, dtype, expected));
        }
    }
    cases
}
