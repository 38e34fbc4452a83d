//! `matmul` and `adapted_row_norms` in f64.

/// A matrix in memory, and how it is read.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// Its numbers, row by row.
    pub values: &'a [f64],
    /// Its rows and columns in memory.
    pub size: [usize; 2],
    /// Rows are read as columns.
    pub transposed: bool,
}

impl Matrix<'_> {
    /// Rows and columns as it is read.
    fn read(self) -> [usize; 2] {
        let [rows, cols] = self.size;
        if self.transposed {
            [cols, rows]
        } else {
            [rows, cols]
        }
    }

    fn at(self, row: usize, col: usize) -> f64 {
        let [row, col] = if self.transposed {
            [col, row]
        } else {
            [row, col]
        };
        self.values[row * self.size[1] + col]
    }
}

/// `y_ij = sum_k a_ik b_kj`.
pub fn matmul(a: Matrix<'_>, b: Matrix<'_>) -> Vec<f64> {
    let ([rows, depth], [_, cols]) = (a.read(), b.read());
    let mut y = Vec::with_capacity(rows * cols);
    for i in 0..rows {
        for j in 0..cols {
            y.push((0..depth).map(|k| a.at(i, k) * b.at(k, j)).sum());
        }
    }
    y
}

/// `W + alpha b a`, `[N, M]`: a `[R, M]`, b `[N, R]`.
pub fn updated_weight(
    weight: &[f64],
    a: &[f64],
    b: &[f64],
    alpha: f64,
    [n, m]: [usize; 2],
) -> Vec<f64> {
    let rank = b.len() / n;
    let mut updated = weight.to_vec();
    for row in 0..n {
        for r in 0..rank {
            for col in 0..m {
                updated[row * m + col] += alpha * b[row * rank + r] * a[r * m + col];
            }
        }
    }
    updated
}

/// The Euclidean norm of each row of M elements.
pub fn row_norms(weight: &[f64], m: usize) -> Vec<f64> {
    let rows = weight.chunks_exact(m);
    rows.map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt())
        .collect()
}
