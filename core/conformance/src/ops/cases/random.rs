//! Cases of `dropout` and `init`.

use espalier_interface::DType;
use espalier_interface::graph::Dim;

use super::{COMPUTE, ROWS, STORED, fixed, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::numbers::integers;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle::{self, DropoutDraw};
use crate::ops::rounding::U;

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.dropout",
        asserts: "the elements that the numbers of seed, step and site leave, divided by 1 - p",
        cases: dropout,
    },
    OpCheck {
        name: "op.init",
        asserts: "zeros, ones, uniform and normal numbers of a seed and a param",
        cases: init,
    },
];

/// A seed in both halves of 64 bits.
const SEED: u64 = 0xDEAD_BEEF_0000_0007;

/// The halves of a seed, as scalars.
fn halves(seed: u64) -> [f64; 2] {
    [seed as u32, (seed >> 32) as u32].map(f64::from)
}

/// The seed that an op is given.
fn seed(draw: &Draw) -> u64 {
    draw.or(SEED, |_| draw.seed(7))
}

/// The share that is dropped.
fn share(dice: &Dice) -> f64 {
    match dice.below(4) {
        0 => dice.one_of(&[0.0, 0.1, 0.5]),
        _ => dice.real(0.0, 0.97),
    }
}

/// `dropout`: `1 / (1 - p)` is two roundings and its product with x one; what is dropped is 0.
fn dropout(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for (index, [t, d]) in draw.shapes(&ROWS, Dice::rows).into_iter().enumerate() {
            let p = draw.or([0.5, 0.1, 0.0, 0.9][index % 4], share);
            let place = DropoutDraw {
                seed: seed(draw),
                step: draw.or(70_000 + index, |dice| dice.below(1 << 30)) as u64,
                site: draw.or(3 + index, |dice| dice.below(10_000)) as u32,
                p,
            };
            let x = draw.numbers(t * d, dtype, 1);
            let first = draw.or(0, |dice| dice.below(1 << 20)) as i32;
            let length = draw.or(11, |dice| dice.extent(70)) as i32;
            let sequence = draw.or(40, |dice| dice.below(1 << 20)) as i32;
            let positions: Vec<i32> = (0..t as i32).map(|i| first + i % length).collect();
            let sequences: Vec<i32> = (0..t as i32).map(|i| sequence + i / length).collect();
            let values = oracle::dropout(&x, &sequences, &positions, place);
            let expected = Near::relative(values.clone(), &values, 3.0 * U);
            let name = format!("{dtype}, T {t}, D {d}, p {p}");
            let case = OpCase::new("dropout", t, name).input(&rows(d), dtype, &x);
            let case = case.input(&[Dim::Tokens], DType::I32, &integers(&sequences));
            let case = case.input(&[Dim::Tokens], DType::I32, &integers(&positions));
            let [low, high] = halves(place.seed);
            let (step, site) = (place.step as f64, f64::from(place.site));
            let case = case.attribute("p", p).scalars(&[low, high, step, site]);
            cases.push(case.output(&rows(d), dtype, expected));
        }
    }
    cases
}

/// `init`: uniform numbers in three roundings of the bound; normal ones to 16 u of their radius
/// (logarithm, root, angle and cosine).
fn init(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&STORED) {
        for n in draw.shapes(&[1, 3, 17, 4099], Dice::length) {
            let (seed, param) = (seed(draw), draw.or(9, |dice| dice.below(1000)) as u32);
            let [bound, std] = [0.04, 0.02].map(|kit| draw.or(kit, |dice| dice.scale(1e-3, 4.0)));
            let constant = |value: f64| Near::exact(vec![value; n]);
            let uniform = oracle::init_uniform(n, seed, param, bound);
            let [normal, radii] = oracle::init_normal(n, seed, param, std);
            let kinds = [
                ("zeros", None, constant(0.0)),
                ("ones", None, constant(1.0)),
                (
                    "uniform",
                    Some(("bound", bound)),
                    Near::relative(uniform, &vec![bound; n], 3.0 * U),
                ),
                (
                    "normal",
                    Some(("std", std)),
                    Near::relative(normal, &radii, 16.0 * U),
                ),
            ];
            for (kind, number, expected) in kinds {
                let case = OpCase::flat("init", format!("{dtype}, {n} elements, {kind}"));
                let case = case.attribute("kind", kind);
                let case = match number {
                    None => case,
                    Some((name, value)) => case.attribute(name, value),
                };
                let [low, high] = halves(seed);
                let case = case.scalars(&[low, high, f64::from(param)]);
                cases.push(case.output(&fixed([n]), dtype, expected));
            }
        }
    }
    cases
}
