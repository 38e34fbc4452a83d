//! A symmetric positive definite matrix -> its lower Cholesky factor, in place and on the host's
//! threads.

use std::sync::Mutex;

use espalier_interface::{PluginError, Result, Services};
use espalier_kernels::simd::vectorized;

/// Columns that are factored together.
const BLOCK: usize = 64;
/// Rows that a thread takes at a time.
const ROWS: usize = 16;
/// Partial sums of a dot product: their number is part of the result's bits.
const LANES: usize = 8;

/// Replaces the lower triangle of `matrix`, `[n, n]` row major, by `L` with `L L^T` the matrix.
/// What is above the diagonal is neither read nor written.
///
/// # Errors
/// `INVALID` for a matrix that is not positive definite, with the row where that shows.
pub fn cholesky(matrix: &mut [f64], n: usize, services: &dyn Services) -> Result<()> {
    let mut panel = vec![0.0; BLOCK.min(n) * n];
    for first in (0..n).step_by(BLOCK) {
        let width = BLOCK.min(n - first);
        let (done, below) = matrix.split_at_mut((first + width) * n);
        let block = &mut done[first * n..];
        // The rows of the block without their own columns: what all rows are multiplied with.
        for (row, copy) in block.chunks_exact(n).zip(panel.chunks_exact_mut(n)) {
            copy[..first].copy_from_slice(&row[..first]);
        }
        let mut diagonal = Vec::with_capacity(width);
        for index in 0..width {
            let row = &mut block[index * n..(index + 1) * n];
            let own = row_of(row, first, index + 1, &panel, n, &diagonal);
            let pivot = own[index];
            if !(pivot > 0.0 && pivot.is_finite()) {
                return Err(PluginError::invalid(format!(
                    "the matrix of the inputs is not positive definite: pivot {pivot:e} in row {} of {n}",
                    first + index
                )));
            }
            own[index] = pivot.sqrt();
            diagonal.push(own[..=index].to_vec());
        }
        let tasks: Vec<Mutex<&mut [f64]>> = below.chunks_mut(ROWS * n).map(Mutex::new).collect();
        services.parallel_for(tasks.len(), &|index| {
            let mut rows = tasks[index].lock().expect("each task is taken once");
            for row in rows.chunks_exact_mut(n) {
                row_of(row, first, width, &panel, n, &diagonal);
            }
        });
    }
    Ok(())
}

/// The columns of a block in a row: less the products with earlier columns, and divided by the
/// factor of the block's diagonal as far as that is known.
fn row_of<'a>(
    row: &'a mut [f64],
    first: usize,
    width: usize,
    panel: &[f64],
    n: usize,
    diagonal: &[Vec<f64>],
) -> &'a mut [f64] {
    let (before, own) = row.split_at_mut(first);
    let own = &mut own[..width];
    vectorized(
        #[inline(always)]
        || {
            for (value, other) in own.iter_mut().zip(panel.chunks_exact(n)) {
                *value -= dot(before, &other[..first]);
            }
            for col in 0..width {
                let Some(factor) = diagonal.get(col) else {
                    // The last column of a row of the block itself: its pivot is not known yet.
                    let (solved, pivot) = own.split_at_mut(col);
                    pivot[0] -= dot(solved, solved);
                    break;
                };
                let (solved, rest) = own.split_at_mut(col);
                rest[0] = (rest[0] - dot(solved, &factor[..col])) / factor[col];
            }
        },
    );
    own
}

#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (a, rest_a) = a.as_chunks::<LANES>();
    let (b, rest_b) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let rest = rest_a.iter().zip(rest_b);
    let rest = rest.fold(0.0, |sum, (a, b)| sum + a * b);
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;

    /// `B B^T + I` of a matrix of small whole numbers.
    fn positive(n: usize) -> Vec<f64> {
        let b = |row: usize, col: usize| ((row * 7 + col * 13 + row * col) % 11) as f64 - 5.0;
        let mut matrix = vec![0.0; n * n];
        for row in 0..n {
            for col in 0..n {
                let sum: f64 = (0..n).map(|k| b(row, k) * b(col, k)).sum();
                matrix[row * n + col] = sum + f64::from(u8::from(row == col));
            }
        }
        matrix
    }

    #[test]
    fn the_factor_times_its_transpose_is_the_matrix() {
        for n in [1, 5, BLOCK, BLOCK + 1, 2 * BLOCK + 39] {
            let matrix = positive(n);
            let mut factor = matrix.clone();
            cholesky(&mut factor, n, &Serial).expect("it is positive definite");
            for row in 0..n {
                for col in 0..=row {
                    let (a, b) = (&factor[row * n..], &factor[col * n..]);
                    let found: f64 = (0..=col).map(|k| a[k] * b[k]).sum();
                    let expected = matrix[row * n + col];
                    let size = matrix[row * n + row].max(matrix[col * n + col]);
                    assert!(
                        (found - expected).abs() < 1e-10 * size,
                        "({row}, {col}) of {n}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_matrix_that_is_not_positive_definite_is_refused() {
        let mut matrix = vec![1.0, 0.0, 2.0, 1.0];
        let error = cholesky(&mut matrix, 2, &Serial).expect_err("its determinant is negative");
        assert!(error.message.contains("row 1 of 2"), "{error}");
        let mut matrix = vec![f64::NAN];
        cholesky(&mut matrix, 1, &Serial).expect_err("not a number");
    }
}
