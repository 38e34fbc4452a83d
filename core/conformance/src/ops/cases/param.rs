//! Cases of `param_value`, its gradient and `adapted_row_norms`, over dense and packed params.

use espalier_interface::DType;

use super::linear::Weight;
use super::{COMPUTE, STORED, fixed, terms};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::numbers::absolute;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle;
use crate::ops::rounding::U;

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.param_value",
        asserts: "the elements of a dense or packed param",
        cases: param_value,
    },
    OpCheck {
        name: "op.param_value_backward",
        asserts: "dy is added to the gradient",
        cases: param_value_backward,
    },
    OpCheck {
        name: "op.adapted_row_norms",
        asserts: "the norms of the rows of weight + alpha b a",
        cases: adapted_row_norms,
    },
];

/// `[N, M]`: one, odd, and more than what is decoded at once.
const SHAPES: [[usize; 2]; 4] = [[1, 1], [17, 65], [3, 515], [67, 300]];

/// The shape of packed weights.
const PACKED: [usize; 2] = [67, 515];
/// [`SHAPES`], and that of packed weights.
const WEIGHT_SHAPES: [[usize; 2]; 5] = [SHAPES[0], SHAPES[1], SHAPES[2], SHAPES[3], PACKED];

fn random(dice: &Dice) -> [usize; 2] {
    [dice.extent(140), dice.extent(700)]
}

/// A dense weight of each dtype for each shape, and all packed ones for one.
fn weights(draw: &Draw) -> Vec<([usize; 2], Weight)> {
    let mut all = Vec::new();
    for shape in draw.shapes(&WEIGHT_SHAPES, random) {
        let packed = draw.or(shape == PACKED, |_| true);
        let mut weights = Weight::all(draw, shape, packed);
        weights.retain(|weight| draw.or(shape != PACKED || weight.is_packed(), |_| true));
        all.extend(weights.into_iter().map(|weight| (shape, weight)));
    }
    all
}

/// `param_value`: the param's own numbers, rounded to the dtype. A vector, too.
fn param_value(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for (shape, weight) in weights(draw) {
            let name = format!("{dtype}, {shape:?}, param {}", weight.name);
            let case = weight.put(OpCase::new("param_value", 0, name), &shape);
            let expected = Near::exact(weight.values.clone());
            cases.push(case.output(&fixed(shape), dtype, expected));
        }
        let kit = [1, 65, 4099].into_iter().zip(STORED);
        let vectors = draw.shapes(&kit.collect::<Vec<_>>(), |dice| {
            (dice.length(), dice.one_of(&STORED))
        });
        for (n, stored) in vectors {
            let values = draw.numbers(n, stored, 4);
            let name = format!("{dtype}, [{n}], param {stored}");
            let case = OpCase::new("param_value", 0, name).param(&[n], stored, &values);
            cases.push(case.output(&fixed([n]), dtype, Near::exact(values)));
        }
    }
    cases
}

/// `param_value_backward`: a sum.
fn param_value_backward(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for [n, m] in draw.shapes(&SHAPES, random) {
            let (dy, start) = (
                draw.numbers(n * m, dtype, 1),
                draw.numbers(n * m, DType::F32, 2),
            );
            let values = oracle::add(&start, &dy, 1.0);
            let magnitudes = oracle::add(&absolute(&start), &absolute(&dy), 1.0);
            let expected = Near::relative(values, &magnitudes, U);
            let name = format!("{dtype}, [{n}, {m}]");
            let case = OpCase::new("param_value_backward", 0, name);
            let case = case.input(&fixed([n, m]), dtype, &dy);
            cases.push(case.updated(&fixed([n, m]), DType::F32, &start, expected));
        }
    }
    cases
}

/// `adapted_row_norms`: an element errs by `R + 3` roundings of its terms' absolute sum. That moves
/// the norm by the norm of these errors; the sum of M squares under the root by half of its own.
fn adapted_row_norms(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for (index, ([n, m], weight)) in weights(draw).into_iter().enumerate() {
        let rank = draw.or([1, 5, 16][index % 3], |dice| dice.extent(40));
        let alpha = draw.or([2.0, -0.3][index % 2], Dice::factor);
        let stored = draw.or_one_of(STORED[index % STORED.len()], &STORED);
        let (a, b) = (
            draw.numbers(rank * m, stored, 5),
            draw.numbers(n * rank, stored, 6),
        );
        let updated =
            |w: &[f64], a: &[f64], b: &[f64], alpha| oracle::updated_weight(w, a, b, alpha, [n, m]);
        let values = oracle::row_norms(&updated(&weight.values, &a, &b, alpha), m);
        let [w, of_a, of_b] = [&weight.values, &a, &b].map(|values| absolute(values));
        let magnitudes = updated(&w, &of_a, &of_b, alpha.abs());
        let moved = oracle::row_norms(&magnitudes, m);
        let bounds = values.iter().zip(&moved);
        let bounds = bounds.map(|(norm, moved)| terms(rank, 3) * moved + terms(m / 2, 2) * norm);
        let expected = Near::new(values.clone(), bounds.collect());
        let name = format!(
            "[{n}, {m}], rank {rank} in {stored}, weight {}",
            weight.name
        );
        let case = OpCase::new("adapted_row_norms", 0, name).attribute("alpha", alpha);
        let case = weight.put(case, &[n, m]);
        let case = case.param(&[rank, m], stored, &a);
        let case = case.param(&[n, rank], stored, &b);
        cases.push(case.output(&fixed([n]), DType::F32, expected));
    }
    cases
}
