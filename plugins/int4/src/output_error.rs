//! What rows of a weight lose, and the Gram matrix of the inputs -> the squared error of their
//! outputs.
//!
//! Legend: `M` columns.

use espalier_kernels::simd::vectorized;

/// Rows that are taken together: their errors are the lanes of all sums.
pub const ROWS: usize = 16;
/// Columns whose sums are taken at once.
const AT_ONCE: usize = 8;
/// Products that are added up in f32 before they join a sum in f64.
const DEPTH: usize = 128;

/// `e_r G e_r^T` for each of the rows `r`. `errors` is `[M, ROWS]`, `gram` `[M, M]` and symmetric.
pub fn output_errors(gram: &[f32], errors: &[[f32; ROWS]]) -> [f64; ROWS] {
    let cols = errors.len();
    vectorized(
        #[inline(always)]
        || {
            let mut sums = [0.0; ROWS];
            let whole = cols - cols % AT_ONCE;
            for first in (0..whole).step_by(AT_ONCE) {
                add::<AT_ONCE>(&gram[first * cols..], errors, first, &mut sums);
            }
            for first in whole..cols {
                add::<1>(&gram[first * cols..], errors, first, &mut sums);
            }
            sums
        },
    )
}

/// Adds the parts of `N` columns from `first` on, whose rows `gram` begins with.
#[inline(always)]
fn add<const N: usize>(gram: &[f32], errors: &[[f32; ROWS]], first: usize, sums: &mut [f64; ROWS]) {
    let cols = errors.len();
    let mut products = [[0.0f64; ROWS]; N];
    for (index, errors) in errors.chunks(DEPTH).enumerate() {
        let rows: [&[f32]; N] =
            std::array::from_fn(|at| &gram[at * cols + index * DEPTH..][..errors.len()]);
        let mut part = [[0.0f32; ROWS]; N];
        // Errors by value and rows by reference: else the compiler adds lane by lane.
        for (at, &error) in errors.iter().enumerate() {
            for (part, row) in part.iter_mut().zip(&rows) {
                let gram = row[at];
                for lane in 0..ROWS {
                    part[lane] += gram * error[lane];
                }
            }
        }
        for (product, part) in products.iter_mut().zip(&part) {
            for lane in 0..ROWS {
                product[lane] += f64::from(part[lane]);
            }
        }
    }
    for (product, error) in products.iter().zip(&errors[first..]) {
        for lane in 0..ROWS {
            sums[lane] += product[lane] * f64::from(error[lane]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_quadratic_form_of_each_row() {
        for cols in [1, 7, 8, 300] {
            let part = |a: usize, b: usize| ((a * 7 + b * 7 + a * b) % 9) as f32 - 4.0;
            let gram: Vec<f32> = (0..cols * cols)
                .map(|at| part(at / cols, at % cols))
                .collect();
            let errors: Vec<[f32; ROWS]> = (0..cols)
                .map(|col| std::array::from_fn(|row| ((col * 5 + row * 3) % 7) as f32 - 3.0))
                .collect();
            let found = output_errors(&gram, &errors);
            for (row, found) in found.into_iter().enumerate() {
                let mut expected = 0.0;
                for a in 0..cols {
                    for b in 0..cols {
                        let product = errors[a][row] * gram[a * cols + b] * errors[b][row];
                        expected += f64::from(product);
                    }
                }
                // Small whole numbers: every sum is exact.
                assert_eq!(found, expected, "{cols} columns, row {row}");
            }
        }
    }
}
