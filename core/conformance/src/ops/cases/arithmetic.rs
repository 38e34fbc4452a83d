//! Cases of `add`, `mul`, `div`, `scale`, and of `scale_channels` and `scale_by` with their
//! gradients.

use espalier_interface::DType;

use super::{COMPUTE, ROWS, STORED, fixed, rows, terms};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::numbers::{absolute, rounded};
use crate::ops::op_check::OpCheck;
use crate::ops::oracle;
use crate::ops::rounding::U;

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.add",
        asserts: "a + alpha b",
        cases: add,
    },
    OpCheck {
        name: "op.mul",
        asserts: "a b",
        cases: mul,
    },
    OpCheck {
        name: "op.div",
        asserts: "a / b",
        cases: div,
    },
    OpCheck {
        name: "op.scale",
        asserts: "alpha a",
        cases: scale,
    },
    OpCheck {
        name: "op.scale_channels",
        asserts: "each channel times its own number",
        cases: scale_channels,
    },
    OpCheck {
        name: "op.scale_channels_weight_backward",
        asserts: "the sum of dy x is added to the gradient",
        cases: scale_channels_weight_backward,
    },
    OpCheck {
        name: "op.scale_by",
        asserts: "each channel times its element of a value",
        cases: scale_by,
    },
    OpCheck {
        name: "op.scale_by_backward",
        asserts: "the sum of dy x",
        cases: scale_by_backward,
    },
];

/// A case for each shape and compute dtype.
fn each(draw: &Draw, case: impl Fn(DType, [usize; 2], String) -> OpCase) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for [t, d] in draw.shapes(&ROWS, Dice::rows) {
            cases.push(case(dtype, [t, d], format!("{dtype}, T {t}, D {d}")));
        }
    }
    cases
}

/// `add`: alpha is rounded, the product and the sum: 3 u of the terms.
fn add(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d], name| {
        let [a, b] = [1, 2].map(|seed| draw.numbers(t * d, dtype, seed));
        let alpha = draw.or(if t == 3 { 1.0 } else { -0.3 }, Dice::factor);
        let magnitudes = oracle::add(&absolute(&a), &absolute(&b), alpha.abs());
        let expected = Near::relative(oracle::add(&a, &b, alpha), &magnitudes, 3.0 * U);
        let case = OpCase::new("add", t, name).input(&rows(d), dtype, &a);
        let case = case.input(&rows(d), dtype, &b);
        // An absent alpha is 1.
        let case = match alpha {
            1.0 => case,
            alpha => case.attribute("alpha", alpha),
        };
        case.output(&rows(d), dtype, expected)
    })
}

/// `mul`: one rounding.
fn mul(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d], name| {
        let [a, b] = [1, 2].map(|seed| draw.numbers(t * d, dtype, seed));
        let product = oracle::mul(&a, &b);
        let expected = Near::relative(product.clone(), &product, U);
        let case = OpCase::new("mul", t, name).input(&rows(d), dtype, &a);
        case.input(&rows(d), dtype, &b)
            .output(&rows(d), dtype, expected)
    })
}

/// `div`: one rounding.
fn div(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d], name| {
        let [a, b] = [1, 2].map(|seed| draw.numbers(t * d, dtype, seed));
        let b: Vec<f64> = b.iter().map(|b| b.signum() * (b.abs() + 0.25)).collect();
        let b = rounded(dtype, &b);
        let quotient = oracle::div(&a, &b);
        let expected = Near::relative(quotient.clone(), &quotient, U);
        let case = OpCase::new("div", t, name).input(&rows(d), dtype, &a);
        case.input(&rows(d), dtype, &b)
            .output(&rows(d), dtype, expected)
    })
}

/// `scale`: alpha is rounded, and the product.
fn scale(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d], name| {
        let x = draw.numbers(t * d, dtype, 1);
        let alpha = draw.or(1.0 / 3.0, Dice::factor);
        let product = oracle::scale(&x, alpha);
        let expected = Near::relative(product.clone(), &product, 2.0 * U);
        let case = OpCase::new("scale", t, name).input(&rows(d), dtype, &x);
        case.attribute("alpha", alpha)
            .output(&rows(d), dtype, expected)
    })
}

/// `scale_channels`: one rounding. The weight also in two dimensions, as IA3 has it.
fn scale_channels(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for (index, [t, d]) in draw.shapes(&ROWS, Dice::rows).into_iter().enumerate() {
            let stored = draw.or_one_of(STORED[index % STORED.len()], &STORED);
            let (x, w) = (draw.numbers(t * d, dtype, 1), draw.numbers(d, stored, 2));
            let product = oracle::scale_channels(&x, &w);
            let expected = Near::relative(product.clone(), &product, U);
            let name = format!("{dtype}, T {t}, N {d}, weight {stored}");
            let flat = draw.or(index % 2 == 0, |dice| dice.once_in(2));
            let shape: &[usize] = if flat { &[d] } else { &[d, 1] };
            let case = OpCase::new("scale_channels", t, name).input(&rows(d), dtype, &x);
            let case = case.param(shape, stored, &w);
            cases.push(case.output(&rows(d), dtype, expected));
        }
    }
    cases
}

/// `scale_channels_weight_backward`: a sum of T products added to the earlier content.
fn scale_channels_weight_backward(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d], name| {
        let [dy, x] = [1, 2].map(|seed| draw.numbers(t * d, dtype, seed));
        let start = draw.numbers(d, DType::F32, 3);
        let sum = oracle::scale_channels_weight_backward;
        let values = oracle::add(&start, &sum(&dy, &x, d), 1.0);
        let magnitudes = sum(&absolute(&dy), &absolute(&x), d);
        let magnitudes = oracle::add(&absolute(&start), &magnitudes, 1.0);
        let expected = Near::relative(values, &magnitudes, terms(t, 1));
        let case = OpCase::new("scale_channels_weight_backward", t, name);
        let case = case.input(&rows(d), dtype, &dy).input(&rows(d), dtype, &x);
        case.updated(&fixed([d]), DType::F32, &start, expected)
    })
}

/// `scale_by`: one rounding.
fn scale_by(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d], name| {
        let (x, factors) = (
            draw.numbers(t * d, dtype, 1),
            draw.numbers(d, DType::F32, 2),
        );
        let product = oracle::scale_channels(&x, &factors);
        let expected = Near::relative(product.clone(), &product, U);
        let case = OpCase::new("scale_by", t, name).input(&rows(d), dtype, &x);
        let case = case.input(&fixed([d]), DType::F32, &factors);
        case.output(&rows(d), dtype, expected)
    })
}

/// `scale_by_backward`: a sum of T products.
fn scale_by_backward(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d], name| {
        let [dy, x] = [1, 2].map(|seed| draw.numbers(t * d, dtype, seed));
        let sum = oracle::scale_channels_weight_backward;
        let magnitudes = sum(&absolute(&dy), &absolute(&x), d);
        let expected = Near::relative(sum(&dy, &x, d), &magnitudes, terms(t, 0));
        let case = OpCase::new("scale_by_backward", t, name);
        let case = case.input(&rows(d), dtype, &dy).input(&rows(d), dtype, &x);
        case.output(&fixed([d]), DType::F32, expected)
    })
}
