//! A matrix -> its largest singular values and their vectors, in f64.
//!
//! Legend: `N x M` the matrix, `R` the values asked for, `K` the width of a basis, above `R`.

use std::sync::Mutex;

use espalier_interface::random::{Purpose, key, normal, philox};
use espalier_interface::{PluginError, Result, Services};
use nalgebra::{DMatrix, SVD};

/// Columns of a basis beyond the rank (Halko, Martinsson and Tropp 2011, section 4.2: 5 or 10).
const MORE: usize = 10;
/// Rows or columns of the matrix in one product. They do not depend on the number of threads, so
/// that sums do not either.
const PART: usize = 64;
/// Most iterations of the exact SVD for each of its values; some 2 are usual.
const MOST_ITERATIONS: usize = 100;

/// The largest singular values of a matrix.
pub struct Svd {
    /// Left vectors, `[N, R]`.
    pub left: DMatrix<f64>,
    /// Values, the largest first, `[R]`.
    pub values: Vec<f64>,
    /// Right vectors, `[M, R]`.
    pub right: DMatrix<f64>,
}

impl Svd {
    /// The `rank` largest of the matrix, row major with rows of `cols` numbers.
    ///
    /// # Errors
    /// `UNSUPPORTED` where the iteration does not end.
    pub fn exact((matrix, cols): (&[f32], usize), rank: usize) -> Result<Self> {
        let rows = matrix.len() / cols;
        let numbers = matrix.iter().map(|&x| f64::from(x));
        Svd::of(DMatrix::from_row_iterator(rows, cols, numbers), rank)
    }

    /// The `rank` largest, nearly: those of the matrix in a basis of few columns, which `niter`
    /// iterations turn towards its largest vectors. The numbers depend on `seed` and not on the
    /// threads of `services`.
    ///
    /// # Source
    /// Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1, as `torch.svd_lowrank`.
    ///
    /// # Errors
    /// As [`Svd::exact`].
    pub fn randomised(
        (matrix, cols): (&[f32], usize),
        (rank, niter): (usize, u64),
        seed: u64,
        services: &dyn Services,
    ) -> Result<Self> {
        let matrix = Matrix {
            numbers: matrix,
            rows: matrix.len() / cols,
            cols,
            services,
        };
        let width = (rank + MORE).min(cols).min(matrix.rows);
        let mut basis = orthonormal(&matrix.times(&drawn(width, cols, seed)));
        for _ in 0..niter {
            let across = orthonormal(&matrix.transposed_times(&basis));
            basis = orthonormal(&matrix.times(&across));
        }
        // Of `W^T Q = U S V^T` follows `W = Q V S U^T` in the basis Q.
        let within = Svd::of(matrix.transposed_times(&basis).transpose(), rank)?;
        Ok(Svd {
            left: basis.transpose() * within.right,
            values: within.values,
            right: within.left,
        })
    }

    fn of(matrix: DMatrix<f64>, rank: usize) -> Result<Self> {
        let most = MOST_ITERATIONS * matrix.nrows().min(matrix.ncols());
        let svd = SVD::try_new(matrix, true, true, 5.0 * f64::EPSILON, most);
        let parts = svd.and_then(|svd| Some((svd.u?, svd.singular_values, svd.v_t?)));
        let (left, values, right) = parts.ok_or_else(|| {
            PluginError::unsupported(format!(
                "the singular values of the matrix are not found after {most} iterations"
            ))
        })?;
        Ok(Svd {
            left: left.columns(0, rank).into_owned(),
            values: values.iter().take(rank).copied().collect(),
            right: right.rows(0, rank).transpose(),
        })
    }
}

/// `width` columns of `rows` standard normal numbers, transposed: `[width, rows]`.
fn drawn(width: usize, rows: usize, seed: u64) -> DMatrix<f64> {
    let key = key(seed, Purpose::INIT, 0);
    // The last word sets these numbers apart from those of params that are drawn.
    let pair = |row: usize, pair: usize| {
        let words = philox(key, [row as u32, pair as u32, 0, 1]);
        normal([words[0], words[1]])
    };
    DMatrix::from_fn(width, rows, |column, row| {
        f64::from(pair(row, column / 2)[column % 2])
    })
}

/// An orthonormal basis of the columns of a matrix; both transposed, `[K, N]`.
fn orthonormal(transposed: &DMatrix<f64>) -> DMatrix<f64> {
    transposed.transpose().qr().q().transpose()
}

/// A matrix in f32, row major, that is multiplied on the host's threads.
struct Matrix<'a> {
    numbers: &'a [f32],
    rows: usize,
    cols: usize,
    services: &'a dyn Services,
}

impl Matrix<'_> {
    /// `(W X)^T`, `[K, N]`, of `X^T`, `[K, M]`.
    fn times(&self, transposed: &DMatrix<f64>) -> DMatrix<f64> {
        self.in_parts(self.rows, |first, count| {
            let part = &self.numbers[first * self.cols..(first + count) * self.cols];
            // Rows one after the other are columns of the transpose.
            let part = part.iter().map(|&x| f64::from(x));
            transposed * DMatrix::from_iterator(self.cols, count, part)
        })
    }

    /// `(W^T Y)^T`, `[K, M]`, of `Y^T`, `[K, N]`.
    fn transposed_times(&self, transposed: &DMatrix<f64>) -> DMatrix<f64> {
        let tall = transposed.transpose();
        self.in_parts(self.cols, |first, count| {
            let mut part = Vec::with_capacity(self.rows * count);
            for row in self.numbers.chunks_exact(self.cols) {
                part.extend(row[first..first + count].iter().map(|&x| f64::from(x)));
            }
            (DMatrix::from_vec(count, self.rows, part) * &tall).transpose()
        })
    }

    /// A matrix of `columns` columns; `part` computes so many of them from the given one on.
    fn in_parts(
        &self,
        columns: usize,
        part: impl Fn(usize, usize) -> DMatrix<f64> + Sync,
    ) -> DMatrix<f64> {
        let parts: Vec<Mutex<Vec<f64>>> = (0..columns.div_ceil(PART))
            .map(|_| Mutex::default())
            .collect();
        self.services.parallel_for(parts.len(), &|index| {
            let first = index * PART;
            let made = part(first, PART.min(columns - first));
            *parts[index].lock().expect("each part is taken once") = made.data.into();
        });
        let parts = parts.into_iter();
        let numbers = parts.flat_map(|part| part.into_inner().expect("no panic"));
        let numbers: Vec<f64> = numbers.collect();
        DMatrix::from_vec(numbers.len() / columns, columns, numbers)
    }
}

#[cfg(test)]
mod tests;
