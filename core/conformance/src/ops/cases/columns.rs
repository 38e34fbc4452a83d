//! Cases of `slice_columns` and its gradient.

use espalier_interface::DType;

use super::{COMPUTE, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle;
use crate::ops::rounding::U;

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.slice_columns",
        asserts: "neighbouring columns of each row",
        cases: slice_columns,
    },
    OpCheck {
        name: "op.slice_columns_backward",
        asserts: "dy in its columns, 0 elsewhere; also added to other values, and in place",
        cases: slice_columns_backward,
    },
];

/// `[T, first, width, M]`: none, all, the first, the last, and columns within.
const SHAPES: [[usize; 4]; 8] = [
    [0, 2, 2, 5],
    [1, 0, 1, 1],
    [3, 0, 17, 17],
    [17, 0, 32, 65],
    [65, 22, 11, 33],
    [5, 16, 24, 64],
    [3, 7, 8, 96],
    [2, 2049, 2050, 4099],
];

/// Up to some thousand columns.
fn random(dice: &Dice) -> [usize; 4] {
    let [t, of] = dice.rows();
    let first = dice.below(of);
    [t, first, dice.between(1, of - first), of]
}

/// A case for each shape and compute dtype.
fn each(draw: &Draw, case: impl Fn(DType, [usize; 4], String) -> OpCase) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for [t, first, width, of] in draw.shapes(&SHAPES, random) {
            let name = format!("{dtype}, T {t}, {width} of {of} columns from {first} on");
            let case = case(dtype, [t, first, width, of], name);
            let case = case.attribute("width", width);
            // An absent number is 0.
            cases.push(match first {
                0 => case,
                first => case.attribute("first", first),
            });
        }
    }
    cases
}

/// `slice_columns`: copies.
fn slice_columns(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, first, width, of], name| {
        let x = draw.numbers(t * of, dtype, 1);
        let expected = Near::exact(oracle::slice_columns(&x, [first, width, of]));
        let case = OpCase::new("slice_columns", t, name).input(&rows(of), dtype, &x);
        case.output(&rows(width), dtype, expected)
    })
}

/// `slice_columns_backward`: copies and zeros, or sums in f32 that are rounded once: u of them, and
/// copies of what is added.
fn slice_columns_backward(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for adds in [None, Some(Memory::Own), Some(Memory::Added)] {
        cases.extend(each(draw, |dtype, [t, first, width, of], name| {
            let dy = draw.numbers(t * width, dtype, 1);
            let added = draw.numbers(t * of, dtype, 2);
            let columns = [first, width, of];
            let case = OpCase::new("slice_columns_backward", t, name);
            let case = case.input(&rows(width), dtype, &dy);
            let Some(memory) = adds else {
                let expected = Near::exact(oracle::slice_columns_backward(&dy, None, columns));
                return case.output(&rows(of), dtype, expected);
            };
            let values = oracle::slice_columns_backward(&dy, Some(&added), columns);
            let expected = Near::relative(values.clone(), &values, U);
            let mut case = case.input(&rows(of), dtype, &added);
            case.name += ", added";
            let case = case.output(&rows(of), dtype, expected);
            match memory {
                Memory::Own => case,
                Memory::Added => case.in_place_of(1),
            }
        }));
    }
    cases
}

/// The memory of an output.
#[derive(Clone, Copy)]
enum Memory {
    /// Its own.
    Own,
    /// That of what is added.
    Added,
}
