//! The cases of each op, with the bounds of their errors.
//!
//! `u` is the unit roundoff of f32. A sum of `n` terms in any order errs by at most `n u` times the
//! sum of the terms' absolute values (Higham, Accuracy and Stability of Numerical Algorithms, 2nd
//! edition, section 4.2); a product, quotient or square root by `u` of its own; `exp`, `log`,
//! `sin`, `cos` and `tanh` are taken to be good to 4 `u`, twice what the best single-precision
//! libraries promise, `erf` to 8 `u` of 1. Bounds are the sums of these to first order.

pub mod adapted;
pub mod arithmetic;
pub mod attention;
pub mod columns;
pub mod cross_entropy;
pub mod embedding;
pub mod expand;
pub mod flat;
pub mod fused;
pub mod gelu;
pub mod indexed;
pub mod layer_norm;
pub mod linear;
pub mod matmul;
pub mod norm;
pub mod norm_offset;
pub mod param;
pub mod random;
pub mod rope;
pub mod sinusoids;
pub mod swiglu;

use espalier_interface::DType;
use espalier_interface::graph::Dim;

use super::rounding::U;

/// The compute dtypes under test.
pub const COMPUTE: [DType; 2] = [DType::F32, DType::BF16];
/// The dtypes of dense weights under test.
pub const STORED: [DType; 3] = [DType::F32, DType::BF16, DType::F16];
/// `[T, width]` of ops that take rows: none, one, odd numbers, and one beyond a power of two.
pub const ROWS: [[usize; 2]; 6] = [[0, 5], [1, 1], [3, 17], [17, 65], [65, 33], [2, 4099]];

/// The shape of rows.
pub fn rows(width: usize) -> [Dim; 2] {
    [Dim::Tokens, Dim::Fixed(width as u64)]
}

/// A shape of fixed extents.
pub fn fixed<const N: usize>(extents: [usize; N]) -> [Dim; N] {
    extents.map(|n| Dim::Fixed(n as u64))
}

/// The error of a sum of `n` terms and `more` further roundings, of the terms' absolute sum.
pub fn terms(n: usize, more: usize) -> f64 {
    (n + more) as f64 * U
}
