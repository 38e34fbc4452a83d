//! Cases of `expand`, `contract` and `broadcast_param`.

use espalier_interface::DType;
use espalier_interface::graph::Dim;

use super::{COMPUTE, STORED, rows, terms};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::numbers::absolute;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle;
use crate::ops::rounding::nearest;

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.expand",
        asserts: "each column repeated, then the row tiled",
        cases: expand,
    },
    OpCheck {
        name: "op.contract",
        asserts: "the sums of the columns that expand makes of each",
        cases: contract,
    },
    OpCheck {
        name: "op.broadcast_param",
        asserts: "the weight in each row",
        cases: broadcast_param,
    },
];

/// `[T, M, R, L]`: rows of heads, whole rows, tiles of a head, and all of them.
const SHAPES: [[usize; 4]; 8] = [
    [0, 3, 4, 1],
    [1, 1, 1, 1],
    [3, 1, 17, 1],
    [17, 4, 33, 1],
    [5, 34, 1, 3],
    [65, 3, 2, 5],
    [2, 1, 4099, 1],
    [2, 1031, 1, 2],
];

/// Up to some thousand columns.
fn random(dice: &Dice) -> [usize; 4] {
    let repeat = if dice.once_in(2) { 1 } else { dice.extent(66) };
    let tile = if dice.once_in(2) { 1 } else { dice.extent(9) };
    let t = dice.tokens(40);
    match dice.below(6) {
        0 => [t, 1, dice.extent(5000), 1],
        1 => [t, dice.extent(2000), 1, tile.min(3)],
        _ => [t, dice.extent(40), repeat, tile],
    }
}

/// A case for each shape and compute dtype.
fn each(draw: &Draw, case: impl Fn(DType, [usize; 4], String) -> OpCase) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for [t, m, repeat, tile] in draw.shapes(&SHAPES, random) {
            let name = format!("{dtype}, T {t}, M {m}, R {repeat}, L {tile}");
            let case = case(dtype, [t, m, repeat, tile], name);
            // An absent number is 1.
            let copies = [("repeat", repeat), ("tile", tile)];
            let set = copies.into_iter().filter(|(_, times)| *times > 1);
            cases.push(set.fold(case, |case, (name, times)| case.attribute(name, times)));
        }
    }
    cases
}

/// `[T, M]`; a single column of the kit as `[T]` where there are three rows.
fn narrow(draw: &Draw, t: usize, m: usize) -> Vec<Dim> {
    match m {
        1 if draw.or(t == 3, |dice| dice.once_in(2)) => vec![Dim::Tokens],
        _ => rows(m).to_vec(),
    }
}

/// `expand`: copies.
fn expand(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, m, repeat, tile], name| {
        let x = draw.numbers(t * m, dtype, 1);
        let expected = Near::exact(oracle::expand(&x, m, [repeat, tile]));
        let case = OpCase::new("expand", t, name).input(&narrow(draw, t, m), dtype, &x);
        case.output(&rows(m * repeat * tile), dtype, expected)
    })
}

/// `contract`: a sum of R L terms.
fn contract(draw: &Draw) -> Vec<OpCase> {
    each(draw, |dtype, [t, m, repeat, tile], name| {
        let (width, copies) = (m * repeat * tile, [repeat, tile]);
        let x = draw.numbers(t * width, dtype, 1);
        // So many terms of both signs leave a sum that is small beside its bound.
        let x = if repeat * tile > 1000 {
            absolute(&x)
        } else {
            x
        };
        let magnitudes = oracle::contract(&absolute(&x), m, copies);
        let error = terms(repeat * tile, 0);
        let expected = Near::relative(oracle::contract(&x, m, copies), &magnitudes, error);
        let case = OpCase::new("contract", t, name).input(&rows(width), dtype, &x);
        case.output(&narrow(draw, t, m), dtype, expected)
    })
}

/// `broadcast_param`: the nearest number of the output's dtype.
fn broadcast_param(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        let shapes = draw.shapes(&SHAPES, random);
        for (index, [t, n, _, tile]) in shapes.into_iter().enumerate() {
            let stored = draw.or_one_of(STORED[index % STORED.len()], &STORED);
            let weight = draw.numbers(n, stored, 2);
            let rounded: Vec<f64> = weight.iter().map(|&w| nearest(dtype, w)).collect();
            let name = format!("{dtype}, T {t}, N {n}, L {tile}, weight {stored}");
            let flat = draw.or(index % 2 == 0, |dice| dice.once_in(2));
            let shape: &[usize] = if flat { &[n] } else { &[n, 1] };
            let case = OpCase::new("broadcast_param", t, name).param(shape, stored, &weight);
            let case = match tile {
                1 => case,
                tile => case.attribute("tile", tile),
            };
            let expected = Near::exact(oracle::broadcast_param(&rounded, t, tile));
            cases.push(case.output(&rows(n * tile), dtype, expected));
        }
    }
    cases
}
