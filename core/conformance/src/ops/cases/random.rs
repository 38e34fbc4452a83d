//! Cases of `dropout` and `init`.

use espalier_interface::DType;
use espalier_interface::graph::Dim;

use super::{COMPUTE, ROWS, STORED, fixed, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::numbers::{drawn, integers};
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

/// The halves of [`SEED`], as scalars.
fn halves() -> [f64; 2] {
    [SEED as u32, (SEED >> 32) as u32].map(f64::from)
}

/// `dropout`: `1 / (1 - p)` is two roundings and its product with x one; what is dropped is 0.
fn dropout() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in COMPUTE {
        for (index, [t, d]) in ROWS.into_iter().enumerate() {
            let p = [0.5, 0.1, 0.0, 0.9][index % 4];
            let draw = DropoutDraw {
                seed: SEED,
                step: 70_000 + index as u64,
                site: 3 + index as u32,
                p,
            };
            let x = drawn(t * d, dtype, 1);
            let positions: Vec<i32> = (0..t as i32).map(|i| i % 11).collect();
            let sequences: Vec<i32> = (0..t as i32).map(|i| 40 + i / 11).collect();
            let values = oracle::dropout(&x, &sequences, &positions, draw);
            let expected = Near::relative(values.clone(), &values, 3.0 * U);
            let name = format!("{dtype}, T {t}, D {d}, p {p}");
            let case = OpCase::new("dropout", t, name).input(&rows(d), dtype, &x);
            let case = case.input(&[Dim::Tokens], DType::I32, &integers(&sequences));
            let case = case.input(&[Dim::Tokens], DType::I32, &integers(&positions));
            let [low, high] = halves();
            let (step, site) = (draw.step as f64, f64::from(draw.site));
            let case = case.attribute("p", p).scalars(&[low, high, step, site]);
            cases.push(case.output(&rows(d), dtype, expected));
        }
    }
    cases
}

/// `init`: uniform numbers in three roundings of the bound; normal ones to 16 u of their radius
/// (logarithm, root, angle and cosine).
fn init() -> Vec<OpCase> {
    let (mut cases, param) = (Vec::new(), 9);
    for dtype in STORED {
        for n in [1, 3, 17, 4099] {
            let (bound, std) = (0.04, 0.02);
            let constant = |value: f64| Near::exact(vec![value; n]);
            let uniform = oracle::init_uniform(n, SEED, param, bound);
            let [normal, radii] = oracle::init_normal(n, SEED, param, std);
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
                let [low, high] = halves();
                let case = case.scalars(&[low, high, f64::from(param)]);
                cases.push(case.output(&fixed([n]), dtype, expected));
            }
        }
    }
    cases
}
