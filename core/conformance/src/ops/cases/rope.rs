//! Cases of `rope` and its gradient.

use espalier_interface::DType;
use espalier_interface::graph::Dim;
use serde_json::json;

use super::{COMPUTE, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::numbers::integers;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle::{self, Rotation};
use crate::ops::rounding::{U, nearest};

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.rope",
        asserts: "halves of heads rotated by their position",
        cases: rope,
    },
    OpCheck {
        name: "op.rope_backward",
        asserts: "the transposed rotation",
        cases: rope_backward,
    },
    OpCheck {
        name: "op.rope.2",
        asserts: "heads of two values rotated by the same positions",
        cases: |draw| cases(draw, ("rope", 2), oracle::rope),
    },
    OpCheck {
        name: "op.rope_backward.2",
        asserts: "the transposed rotations of two gradients",
        cases: |draw| cases(draw, ("rope_backward", 2), oracle::rope_backward),
    },
];

/// `[T, H, K]` and the position of the first token.
const SHAPES: [([usize; 3], i32); 6] = [
    ([0, 1, 4], 0),
    ([1, 1, 2], 0),
    ([3, 3, 6], 5),
    ([17, 2, 34], 0),
    ([65, 1, 64], 4000),
    ([5, 4, 128], 100_000),
];

/// Heads, whose widths may be odd.
fn random(dice: &Dice) -> ([usize; 3], i32) {
    let first = dice.one_of(&[0, dice.below(200), dice.below(131_072)]);
    let heads = dice.between(1, 6);
    let head_dim = dice.extent(if dice.once_in(8) { 600 } else { 150 });
    ([dice.tokens(70), heads, head_dim.max(2)], first as i32)
}

fn rotation(draw: &Draw, head_dim: usize) -> Rotation {
    let half = draw.or(head_dim / 2, |dice| match dice.below(4) {
        0 => dice.between(1, head_dim / 2),
        _ => head_dim / 2,
    });
    // As in Llama, theta 10000, in f32 as configs give them.
    let theta = draw.or(10_000.0, |dice| dice.scale(100.0, 1e6));
    let frequency = |i: usize| theta.powf(-(i as f64) / half as f64);
    Rotation {
        head_dim,
        inv_freq: (0..half)
            .map(|i| nearest(DType::F32, frequency(i)))
            .collect(),
        scaling: draw.or(if head_dim == 34 { 1.25 } else { 1.0 }, |dice| {
            dice.one_of(&[1.0, 1.0, dice.real(0.5, 2.0)])
        }),
    }
}

/// The angle is one rounding, which moves cosine and sine by `u a`; they are good to 4 u, times the
/// scaling, times x, and a sum: 7 u.
fn bounds(x: &[f64], positions: &[i32], rotation: &Rotation) -> Vec<f64> {
    let mut bounds = Vec::with_capacity(x.len());
    let half = rotation.inv_freq.len();
    for at in 0..x.len() {
        let t = at / (x.len() / positions.len());
        let (i, head) = (at % rotation.head_dim, at - at % rotation.head_dim);
        if i >= 2 * half {
            // Copied.
            bounds.push(0.0);
            continue;
        }
        let angle = f64::from(positions[t]) * rotation.inv_freq[i % half];
        let size = x[head + i % half].abs() + x[head + half + i % half].abs();
        bounds.push(size * rotation.scaling * U * (angle.abs() + 7.0));
    }
    bounds
}

/// What an op does to rows.
type Turn = fn(&[f64], &[i32], &Rotation) -> Vec<f64>;

/// Cases of a version of an op. Version 2 has heads of queries, and about half as many of keys.
fn cases(draw: &Draw, (op, version): (&str, u32), turn: Turn) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for ([t, most_heads, head_dim], first) in draw.shapes(&SHAPES, random) {
            // Two sequences: positions begin again.
            let length = draw.or(20, |dice| dice.extent(70)) as i32;
            let position = |i| {
                if i < length { first + i } else { i - length }
            };
            let positions: Vec<i32> = (0..t as i32).map(position).collect();
            let rotation = rotation(draw, head_dim);
            let name =
                format!("{dtype}, T {t}, H {most_heads}, K {head_dim}, from position {first}");
            let mut case = OpCase::new(op, t, name).version(version);
            let fewer = draw.or(most_heads.div_ceil(2), |dice| dice.between(1, most_heads));
            let heads = [most_heads, fewer].into_iter().take(version as usize);
            for (index, heads) in heads.enumerate() {
                let x = draw.numbers(t * heads * head_dim, dtype, index as u64 + 1);
                let values = turn(&x, &positions, &rotation);
                let expected = Near::new(values, bounds(&x, &positions, &rotation));
                let width = rows(heads * head_dim);
                case = case
                    .input(&width, dtype, &x)
                    .output(&width, dtype, expected);
            }
            let case = case.input(&[Dim::Tokens], DType::I32, &integers(&positions));
            let case = case.attribute("head_dim", head_dim);
            let case = case.attribute("inv_freq", json!(rotation.inv_freq));
            cases.push(case.attribute("scaling", rotation.scaling));
        }
    }
    cases
}

/// `rope`.
fn rope(draw: &Draw) -> Vec<OpCase> {
    cases(draw, ("rope", 1), oracle::rope)
}

/// `rope_backward`.
fn rope_backward(draw: &Draw) -> Vec<OpCase> {
    cases(draw, ("rope_backward", 1), oracle::rope_backward)
}
