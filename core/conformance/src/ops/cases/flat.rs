//! Cases of the ops on flat runs: `zero`, `cast`, `sum_squares` and `first_not_finite`.

use espalier_interface::DType;

use super::{STORED, fixed};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle;
use crate::ops::rounding::nearest;

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.zero",
        asserts: "zero bytes",
        cases: zero,
    },
    OpCheck {
        name: "op.cast",
        asserts: "the nearest number of another dtype, ties to even",
        cases: cast,
    },
    OpCheck {
        name: "op.sum_squares",
        asserts: "the sum of squares in f64",
        cases: sum_squares,
    },
    OpCheck {
        name: "op.first_not_finite",
        asserts: "the index of the first NaN or infinity, or -1",
        cases: first_not_finite,
    },
];

/// Elements of a run: one, odd numbers, and more than a chunk of any of them.
const LENGTHS: [usize; 5] = [1, 3, 65, 4099, 70_001];

/// `zero`: zero bytes in every dtype.
fn zero(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&[DType::F32, DType::BF16, DType::U8, DType::I32]) {
        for n in draw.shapes(&LENGTHS, Dice::length) {
            let case = OpCase::flat("zero", format!("{dtype}, {n} elements"));
            let expected = Near::exact(vec![0.0; n]);
            cases.push(case.output(&fixed([n]), dtype, expected));
        }
    }
    cases
}

/// `cast`: to nearest, ties to even; infinities and NaN stay what they are, and what is too large
/// becomes infinite.
fn cast(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for from in draw.each(&STORED) {
        for to in draw.each(&STORED) {
            for n in draw.shapes(&LENGTHS, Dice::length) {
                // Of a seed also numbers that are too large or not normal in another dtype.
                let scale = draw.or(1.0, |dice| dice.scale(1e-9, 1e6));
                let mut x = draw.numbers(n, from, 1);
                x.iter_mut().for_each(|x| *x = nearest(from, *x * scale));
                let special = [
                    f64::NAN,
                    f64::INFINITY,
                    f64::NEG_INFINITY,
                    0.0,
                    // Ties of bf16 and f16, to either side; 65520 is infinite in f16.
                    1.0 + 1.0 / 256.0,
                    1.0 + 3.0 / 256.0,
                    1.0 + 1.0 / 2048.0,
                    -1.0 - 3.0 / 2048.0,
                    65_519.0,
                    65_520.0,
                    f64::from(f32::MAX),
                ];
                for (x, special) in x.iter_mut().skip(2).step_by(5).zip(special) {
                    *x = nearest(from, special);
                }
                let case = OpCase::flat("cast", format!("{from} to {to}, {n} elements"));
                let case = case.input(&fixed([n]), from, &x);
                cases.push(case.output(&fixed([n]), to, Near::exact(x)));
            }
        }
    }
    cases
}

/// `sum_squares`: a sum of n squares in f64, and as many roundings of the oracle's own.
fn sum_squares(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&STORED) {
        for n in draw.shapes(&LENGTHS, Dice::length) {
            let x = draw.numbers(n, dtype, 1);
            let sum = oracle::sum_squares(&x);
            // The unit roundoff of f64 is half of its epsilon.
            let expected = Near::relative(vec![sum], &[sum], n as f64 * f64::EPSILON);
            let case = OpCase::flat("sum_squares", format!("{dtype}, {n} elements"));
            let case = case.input(&fixed([n]), dtype, &x);
            cases.push(case.output(&fixed([1]), DType::F64, expected));
        }
    }
    cases
}

/// `first_not_finite`: the first of several, in any chunk.
fn first_not_finite(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&STORED) {
        for n in draw.shapes(&LENGTHS, Dice::length) {
            let kit = vec![vec![], vec![0], vec![n - 1], vec![n / 2, n / 3, n - 1]];
            for places in draw.or(kit, |dice| {
                let places = 0..dice.below(4);
                vec![places.map(|_| dice.below(n)).collect()]
            }) {
                let mut x = draw.numbers(n, dtype, 1);
                let wrong = [f64::NAN, f64::NEG_INFINITY, f64::INFINITY];
                for (place, wrong) in places.iter().zip(wrong) {
                    x[*place] = wrong;
                }
                let expected = Near::exact(vec![oracle::first_not_finite(&x)]);
                let name = format!("{dtype}, {n} elements, not finite at {places:?}");
                let case = OpCase::flat("first_not_finite", name).input(&fixed([n]), dtype, &x);
                cases.push(case.output(&fixed([1]), DType::I64, expected));
            }
        }
    }
    cases
}
