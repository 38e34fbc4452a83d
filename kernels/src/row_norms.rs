//! A weight, dense or packed, and the two matrices of a low-rank update -> the norm of each row of
//! the updated weight.
//!
//! Legend: `N x M` the weight, `R` the rank of the update.

use espalier_interface::Services;

use crate::lanes;
use crate::matmul::{Rows, Scalar};
use crate::simd::vectorized;
use crate::split::chunks_mut;

/// Rows that one task computes together.
const ROWS: usize = 8;
/// Columns of the updated weight that exist at once.
const COLS: usize = 256;

/// Writes `norms_n = || W_n + alpha sum_r b_nr a_r ||`. A row's bits depend on that row alone. Each
/// element adds its `R` terms in order. The squares of [`COLS`] columns are summed in lanes, and
/// these sums are added in order.
///
/// # Shapes
/// weight `[N, M]`, a `[R, M]`, b `[N, R]`, norms `[N]`.
///
/// # Panics
/// Where shapes disagree.
pub fn adapted_row_norms<S: Scalar>(
    services: &dyn Services,
    weight: &dyn Rows<S>,
    (a, b): (&[S], &[S]),
    alpha: f64,
    norms: &mut [S],
) {
    let (rows, cols) = weight.size();
    let rank = b.len().checked_div(rows).unwrap_or(0);
    assert!(
        norms.len() == rows && b.len() == rows * rank && a.len() == rank * cols,
        "adapted_row_norms: shapes disagree"
    );
    let alpha = S::from_f64(alpha);
    chunks_mut(services, norms, ROWS, |first, norms| {
        let mut sums = [S::ZERO; ROWS];
        let mut scratch = [S::ZERO; ROWS * COLS];
        for start in (0..cols).step_by(COLS) {
            let end = cols.min(start + COLS);
            let block = first..first + norms.len();
            let (values, stride) = weight.window(block, start..end, &mut scratch);
            for (row, sum) in sums[..norms.len()].iter_mut().enumerate() {
                let values = &values[row * stride..row * stride + end - start];
                let b = &b[(first + row) * rank..(first + row + 1) * rank];
                *sum += squares(values, (a, b), cols, start, alpha);
            }
        }
        for (norm, sum) in norms.iter_mut().zip(sums) {
            *norm = sum.sqrt();
        }
    });
}

/// The sum of squares of some columns, from `start` on, of one updated row.
fn squares<S: Scalar>(
    values: &[S],
    (a, b): (&[S], &[S]),
    cols: usize,
    start: usize,
    alpha: S,
) -> S {
    vectorized(
        #[inline(always)]
        move || {
            let mut update = [S::ZERO; COLS];
            let update = &mut update[..values.len()];
            for (b, a) in b.iter().zip(a.chunks_exact(cols)) {
                let (b, a) = (*b, &a[start..start + values.len()]);
                update.iter_mut().zip(a).for_each(|(sum, &a)| *sum += b * a);
            }
            for (sum, &value) in update.iter_mut().zip(values) {
                *sum = value + alpha * *sum;
            }
            lanes::sum(
                update,
                #[inline(always)]
                |x| x * x,
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;
    use half::bf16;

    use super::*;
    use crate::check;
    use crate::matmul::Dense;

    fn plain(weight: &[f64], a: &[f64], b: &[f64], alpha: f64, [n, m]: [usize; 2]) -> Vec<f64> {
        let rank = b.len() / n;
        let norm = |row: usize| {
            let element = |col: usize| {
                let update: f64 = (0..rank).map(|r| b[row * rank + r] * a[r * m + col]).sum();
                weight[row * m + col] + alpha * update
            };
            (0..m).map(|col| element(col).powi(2)).sum::<f64>().sqrt()
        };
        (0..n).map(norm).collect()
    }

    #[test]
    fn norms_of_ragged_shapes_and_every_dtype_are_those_of_the_sum() {
        for [n, m, rank] in [[1, 1, 1], [3, 7, 2], [17, 300, 5], [9, 256, 0]] {
            let [weight, a, b] = [(n * m, 1), (rank * m, 2), (n * rank, 3)]
                .map(|(elements, seed)| check::numbers(elements, seed));
            let expected = plain(&weight, &a, &b, -0.7, [n, m]);
            let mut found = vec![0.0f64; n];
            let dense = Dense::new(&weight, n, m);
            adapted_row_norms(&Serial, &dense, (&a, &b), -0.7, &mut found);
            check::close(&found, &expected, 1e-13);
            let (af, bf) = (check::floats(&a), check::floats(&b));
            let halves: Vec<bf16> = weight.iter().map(|&x| bf16::from_f64(x)).collect();
            let wide: Vec<f64> = halves.iter().map(|x| x.to_f64()).collect();
            let expected = plain(&wide, &a, &b, -0.7, [n, m]);
            let run = |services: &dyn Services| {
                let mut found = vec![0.0f32; n];
                let dense = Dense::new(&halves, n, m);
                adapted_row_norms(services, &dense, (&af, &bf), -0.7, &mut found);
                (found.clone(), found)
            };
            check::same_on_two_threads(run);
            check::close(&run(&Serial).0, &expected, 1e-5);
        }
    }
}
