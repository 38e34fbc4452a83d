//! Cases of `row_max`, `is_argmax`, `pick`, `one_hot` and `scale_trained`.

use espalier_interface::DType;
use espalier_interface::graph::Dim;

use super::{COMPUTE, ROWS, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::numbers::integers;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle::{self, IGNORED};
use crate::ops::rounding::U;

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.row_max",
        asserts: "the largest number of each row",
        cases: row_max,
    },
    OpCheck {
        name: "op.is_argmax",
        asserts: "1 where the first largest number is at the index",
        cases: is_argmax,
    },
    OpCheck {
        name: "op.pick",
        asserts: "the number at each row's index, 0 where it is -100",
        cases: pick,
    },
    OpCheck {
        name: "op.one_hot",
        asserts: "1 at each row's index",
        cases: one_hot,
    },
    OpCheck {
        name: "op.scale_trained",
        asserts: "factor x, 0 where the label is -100",
        cases: scale_trained,
    },
];

/// An index for each row; every fifth is -100.
fn indices(draw: &Draw, [t, width]: [usize; 2]) -> Vec<i32> {
    let index = |row: usize| match row % 5 {
        4 => IGNORED,
        3 => width as i32 - 1,
        _ => (row * 31 % width) as i32,
    };
    draw.indices((0..t).map(index).collect(), width)
}

/// A case for each shape and compute dtype.
fn each(draw: &Draw, case: impl Fn(DType, [usize; 2], String) -> OpCase) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for [t, d] in draw.shapes(&ROWS, Dice::rows) {
            cases.push(case(dtype, [t, d], format!("{dtype}, T {t}, N {d}")));
        }
    }
    cases
}

/// A launch of `op` on rows, and an index for each.
fn indexed(op: &str, dtype: DType, x: (&[f64], usize), index: &[i32], name: String) -> OpCase {
    let (x, width) = x;
    let case = OpCase::new(op, index.len(), name).input(&rows(width), dtype, x);
    case.input(&[Dim::Tokens], DType::I32, &integers(index))
}

/// `row_max`: one of the numbers.
fn row_max(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d], name| {
        let x = draw.numbers(t * d, dtype, 1);
        let case = OpCase::new("row_max", t, name).input(&rows(d), dtype, &x);
        case.output(&[Dim::Tokens], dtype, Near::exact(oracle::row_max(&x, d)))
    })
}

/// `is_argmax`: rows whose largest number is at the index, after it, and there a second time.
fn is_argmax(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d], name| {
        let (mut x, index) = (draw.numbers(t * d, dtype, 1), indices(draw, [t, d]));
        for (row, (x, &index)) in x.chunks_exact_mut(d).zip(&index).enumerate() {
            if index != IGNORED && row % 3 != 2 {
                x[index as usize] = 8.0;
            }
            if row % 3 == 1 {
                x[0] = 8.0;
            }
        }
        let expected = Near::exact(oracle::is_argmax(&x, &index, d));
        let case = indexed("is_argmax", dtype, (&x, d), &index, name);
        case.output(&[Dim::Tokens], DType::I32, expected)
    })
}

/// `pick`: one of the numbers, or 0.
fn pick(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d], name| {
        let x = draw.numbers(t * d, dtype, 1);
        let index = indices(draw, [t, d]);
        let expected = Near::exact(oracle::pick(&x, &index, d));
        let case = indexed("pick", dtype, (&x, d), &index, name);
        case.output(&[Dim::Tokens], dtype, expected)
    })
}

/// `one_hot`: zeros and ones.
fn one_hot(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d], name| {
        let index = indices(draw, [t, d]);
        let case = OpCase::new("one_hot", t, name);
        let case = case.input(&[Dim::Tokens], DType::I32, &integers(&index));
        case.output(&rows(d), dtype, Near::exact(oracle::one_hot(&index, d)))
    })
}

/// `scale_trained`: the factor is rounded, and the product; zeros for all rows.
fn scale_trained(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, d], name| {
        let (mut x, labels) = (draw.numbers(t * d, dtype, 1), indices(draw, [t, d]));
        let factor = draw.or(1.0 / 37.0, Dice::factor);
        let values = oracle::scale_trained(&x, &labels, factor);
        for (x, &label) in x.chunks_exact_mut(d).zip(&labels) {
            if label == IGNORED {
                x[0] = f64::INFINITY;
            }
        }
        let expected = Near::relative(values.clone(), &values, 2.0 * U);
        let case = indexed("scale_trained", dtype, (&x, d), &labels, name);
        let case = case.scalars(&[factor]);
        case.output(&rows(d), dtype, expected)
    })
}
