//! Cases of `rope` and its gradient.

use espalier_interface::DType;
use espalier_interface::graph::Dim;
use serde_json::json;

use super::{COMPUTE, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::numbers::{drawn, integers};
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
        cases: || pairs("rope", oracle::rope),
    },
    OpCheck {
        name: "op.rope_backward.2",
        asserts: "the transposed rotations of two gradients",
        cases: || pairs("rope_backward", oracle::rope_backward),
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

fn rotation(head_dim: usize) -> Rotation {
    let half = head_dim / 2;
    // As in Llama, theta 10000, in f32 as configs give them.
    let frequency = |i: usize| 10_000f64.powf(-(i as f64) / half as f64);
    Rotation {
        head_dim,
        inv_freq: (0..half)
            .map(|i| nearest(DType::F32, frequency(i)))
            .collect(),
        scaling: if head_dim == 34 { 1.25 } else { 1.0 },
    }
}

/// The angle is one rounding, which moves cosine and sine by `u a`; they are good to 4 u, times the
/// scaling, times x, and a sum: 7 u.
fn bounds(x: &[f64], positions: &[i32], rotation: &Rotation) -> Vec<f64> {
    let mut bounds = Vec::with_capacity(x.len());
    let half = rotation.head_dim / 2;
    for at in 0..x.len() {
        let t = at / (x.len() / positions.len());
        let (i, head) = (at % rotation.head_dim, at - at % rotation.head_dim);
        let angle = f64::from(positions[t]) * rotation.inv_freq[i % half];
        let size = x[head + i % half].abs() + x[head + half + i % half].abs();
        bounds.push(size * rotation.scaling * U * (angle.abs() + 7.0));
    }
    bounds
}

/// What an op does to rows.
type Turn = fn(&[f64], &[i32], &Rotation) -> Vec<f64>;

fn each(op: &str, turn: Turn) -> Vec<OpCase> {
    cases(op, turn, |heads| vec![heads])
}

/// Version 2: heads of queries, and about half as many of keys.
fn pairs(op: &str, turn: Turn) -> Vec<OpCase> {
    let cases = cases(op, turn, |heads| vec![heads, heads.div_ceil(2)]);
    cases.into_iter().map(|case| case.version(2)).collect()
}

/// Cases of an op on values with as many heads as `heads` says.
fn cases(op: &str, turn: Turn, heads: fn(usize) -> Vec<usize>) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in COMPUTE {
        for ([t, most_heads, head_dim], first) in SHAPES {
            // Two sequences: positions begin again.
            let positions = (0..t as i32).map(|i| if i < 20 { first + i } else { i - 20 });
            let (positions, rotation) = (positions.collect::<Vec<_>>(), rotation(head_dim));
            let name =
                format!("{dtype}, T {t}, H {most_heads}, K {head_dim}, from position {first}");
            let mut case = OpCase::new(op, t, name);
            for (index, heads) in heads(most_heads).into_iter().enumerate() {
                let x = drawn(t * heads * head_dim, dtype, index as u64 + 1);
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
fn rope() -> Vec<OpCase> {
    each("rope", oracle::rope)
}

/// `rope_backward`.
fn rope_backward() -> Vec<OpCase> {
    each("rope_backward", oracle::rope_backward)
}
