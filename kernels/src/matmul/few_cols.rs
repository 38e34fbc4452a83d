//! A product of few columns, of operands that are both summed over their rows -> the transposed
//! product, of few rows.
//!
//! Its tasks read whole lines of the wide operand, where tasks of the product itself would read a
//! few elements of each of its rows. Every element is the same chain of sums of the same products:
//! no bit differs.

use espalier_interface::Services;

use super::combine::Sums;
use super::slots::numbers;
use super::source::{Operand, Summed};
use super::{Combine, Isa, Output, Scalar, multiply, slot_bytes};
use crate::element::Element;
use crate::simd::vectorized;

/// Most columns, and how many times as many rows there are at least.
pub(super) const MOST_COLS: usize = 16;
const LEAST_RATIO: usize = 4;
/// Rows that are transposed at a time.
const ROWS: usize = 16;

/// Whether a product is computed as the transposed one: its sums are added up in the output.
pub(super) fn is_transposed<S: Scalar, E>(
    isa: Isa,
    (left, right): (Operand<'_, S>, Operand<'_, S>),
    sums: &Sums<'_, E>,
) -> bool {
    let ((rows, _), (cols, _)) = (left.size(), right.size());
    (1..=MOST_COLS).contains(&cols)
        && rows >= LEAST_RATIO * cols
        && isa == isa.vectors()
        && [left.summed, right.summed] == [Summed::Rows; 2]
        && matches!(sums, Sums::InOutput(_))
}

/// Bytes of workspace for an output of this size.
pub(super) fn bytes<S>(rows: usize, cols: usize) -> usize {
    slot_bytes::<S>(rows * cols, 0, 1)
}

/// The product, where [`is_transposed`] says so.
///
/// # Panics
/// As [`matmul`](super::matmul).
pub(super) fn compute<E: Element>(
    isa: Isa,
    services: &dyn Services,
    (left, right): (Operand<'_, E::Acc>, Operand<'_, E::Acc>),
    (values, stride, combine): (&mut [E], usize, Combine<'_, E>),
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let ((rows, _), (cols, _)) = (left.size(), right.size());
    let (memory, workspace) = workspace.split_at_mut(bytes::<E>(rows, cols));
    let transposed = &mut numbers::<E>(memory)[..rows * cols];
    if let Combine::Accumulate = combine {
        transpose((&*values, stride), (&mut *transposed, rows), [rows, cols]);
    }
    let out = Output {
        values: &mut *transposed,
        stride: rows,
        combine,
        bias: None,
    };
    multiply(isa, services, (right, left), None, out, workspace);
    transpose((&*transposed, rows), (values, stride), [cols, rows]);
}

/// `to[j, i] = from[i, j]` of `[rows, cols]`, with the elements from one row to the next.
fn transpose<E: Copy>(
    (from, from_stride): (&[E], usize),
    (to, to_stride): (&mut [E], usize),
    [rows, cols]: [usize; 2],
) {
    vectorized(
        #[inline(always)]
        move || {
            for first in (0..rows).step_by(ROWS) {
                let some = first..(first + ROWS).min(rows);
                for col in 0..cols {
                    let to = &mut to[col * to_stride..][some.clone()];
                    for (to, row) in to.iter_mut().zip(some.clone()) {
                        *to = from[row * from_stride + col];
                    }
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::tests::numbers;
    use crate::matmul::threads::Threads;
    use crate::matmul::{Dense, Update, matmul, multiply_into, space, workspace_bytes};

    const DEPTH: usize = 300;

    /// Fails where the product of `E` has other bits than one that is not transposed.
    fn check<E: Element<Acc = E> + Scalar>(isa: Isa, [rows, cols]: [usize; 2]) {
        let stride = cols + 3;
        let (a, b) = (numbers::<E>(DEPTH * rows, 1), numbers::<E>(DEPTH * cols, 2));
        let (left, right) = (Dense::new(&a, DEPTH, rows), Dense::new(&b, DEPTH, cols));
        let sides = (Operand::over_rows(&left), Operand::over_rows(&right));
        let before = numbers::<E>(rows * stride, 3);
        for (combine, update) in [
            (Combine::Accumulate, Update::Accumulate),
            (Combine::PRODUCT, Update::Overwrite),
        ] {
            let sums = combine.sums(isa, DEPTH, true);
            assert!(is_transposed(isa, sides, &sums), "{isa:?}");
            let mut expected = before.clone();
            let mut memory = vec![E::ZERO; space::<E>()];
            multiply_into(isa, sides, (&mut expected, stride), update, &mut memory);
            for threads in [1, 3] {
                // Of larger products, too, the workspace is enough.
                let bytes = workspace_bytes::<E>(isa, threads, [rows + 1, 3 * cols, DEPTH]);
                let mut workspace = vec![0xFF; bytes];
                let mut found = before.clone();
                let out = Output {
                    values: &mut found[..],
                    stride,
                    combine,
                    bias: None,
                };
                matmul(
                    isa,
                    &Threads(threads),
                    sides.0,
                    sides.1,
                    out,
                    &mut workspace,
                );
                assert!(
                    found == expected,
                    "{isa:?}, {rows} x {cols}, {threads} threads"
                );
            }
        }
    }

    #[test]
    fn a_product_of_few_columns_has_the_bits_of_one_that_is_not_transposed() {
        for &isa in Isa::available().iter().filter(|&&isa| isa == isa.vectors()) {
            for size in [[768, 16], [53, 13], [4, 1], [70, 5]] {
                check::<f32>(isa, size);
                check::<f64>(isa, size);
            }
        }
    }
}
