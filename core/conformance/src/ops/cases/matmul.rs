//! Cases of `matmul`: rows of tokens, sums over tokens, and fixed matrices.

use espalier_interface::graph::Dim;

use super::{COMPUTE, fixed, rows, terms};
use crate::ops::case::{Near, OpCase};
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::numbers::absolute;
use crate::ops::op_check::OpCheck;
use crate::ops::oracle::{self, Matrix};

/// The checks.
pub const OPS: &[OpCheck] = &[OpCheck {
    name: "op.matmul",
    asserts: "the product of two values, each plain or transposed",
    cases: matmul,
}];

/// `[T, I, J]`: none, one, odd, and more than a tile of any of them.
const SHAPES: [[usize; 3]; 8] = [
    [0, 3, 5],
    [1, 1, 1],
    [3, 17, 65],
    [17, 65, 3],
    [65, 130, 33],
    [33, 67, 515],
    // Rows that are multiples of 16 bytes, which a backend may copy as such.
    [24, 40, 72],
    [40, 24, 16],
];

/// The place of the tokens.
#[derive(Clone, Copy, Debug)]
enum Tokens {
    /// Rows of a and of the product.
    Rows,
    /// The depth, which is summed over.
    Depth,
    /// Columns of the product.
    Cols,
    /// Nowhere: all extents are fixed.
    Nowhere,
}

/// All places.
const TOKENS: [Tokens; 4] = [Tokens::Rows, Tokens::Depth, Tokens::Cols, Tokens::Nowhere];

/// `matmul`: sums of as many products as the depth.
fn matmul(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        let shapes = draw.shapes(&SHAPES, Dice::product);
        for (index, [t, i, j]) in shapes.into_iter().enumerate() {
            for tokens in draw.each(&TOKENS) {
                // Rows, depth and columns of the product.
                let [n, k, m] = match tokens {
                    Tokens::Rows => [t, i, j],
                    Tokens::Depth => [i, t, j],
                    Tokens::Cols => [i, j, t],
                    Tokens::Nowhere => [i, t.max(1), j],
                };
                let flags = [index % 2 == 1, index / 2 % 2 == 1];
                let flags = flags.map(|flag| draw.or(flag, |dice| dice.once_in(2)));
                let [a_size, b_size] = [stored([n, k], flags[0]), stored([k, m], flags[1])];
                let a = draw.numbers(n * k, dtype, 1);
                let b = draw.numbers(k * m, dtype, 2);
                let product = |a: &[f64], b: &[f64]| {
                    let side = |values, size, transposed| Matrix {
                        values,
                        size,
                        transposed,
                    };
                    oracle::matmul(side(a, a_size, flags[0]), side(b, b_size, flags[1]))
                };
                let magnitudes = product(&absolute(&a), &absolute(&b));
                let expected = Near::relative(product(&a, &b), &magnitudes, terms(k, 0));
                let [of_a, of_b, of_out] = dims(tokens, [n, k, m]);
                let name = format!("{dtype}, {n} x {k} x {m}, tokens {tokens:?}, {flags:?}");
                let case = OpCase::new("matmul", t, name);
                let case = case.input(&stored(of_a, flags[0]), dtype, &a);
                let case = case.input(&stored(of_b, flags[1]), dtype, &b);
                let case = case.attribute("transpose_a", flags[0]);
                let case = case.attribute("transpose_b", flags[1]);
                cases.push(case.output(&of_out, dtype, expected));
            }
        }
    }
    cases
}

/// The extents of a, of b and of the product, as they are read.
fn dims(tokens: Tokens, [n, k, m]: [usize; 3]) -> [[Dim; 2]; 3] {
    match tokens {
        Tokens::Rows => [rows(k), fixed([k, m]), rows(m)],
        Tokens::Depth => {
            let [t, n_dim] = rows(n);
            [[n_dim, t], rows(m), fixed([n, m])]
        }
        Tokens::Cols => {
            let [t, k_dim] = rows(k);
            let [_, n_dim] = rows(n);
            [fixed([n, k]), [k_dim, t], [n_dim, t]]
        }
        Tokens::Nowhere => [fixed([n, k]), fixed([k, m]), fixed([n, m])],
    }
}

/// The extents in memory of a matrix that is read so.
fn stored<T>([rows, cols]: [T; 2], transposed: bool) -> [T; 2] {
    if transposed {
        [cols, rows]
    } else {
        [rows, cols]
    }
}
