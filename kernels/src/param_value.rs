//! A param, dense or packed -> its elements as plain numbers.

use espalier_interface::Services;

use crate::element::{Element, convert_real};
use crate::matmul::{Rows, Scalar};
use crate::simd::vectorized;
use crate::split::{chunks_mut, rows_per_chunk};

/// Elements of a row that are decoded at once.
const COLS: usize = 256;

/// Writes each element of `param`, rounded to the dtype of `out`.
///
/// # Shapes
/// param and out `[N, M]`.
///
/// # Panics
/// Where `out` has another number of elements.
pub fn param_value<S: Scalar, E: Element>(
    services: &dyn Services,
    param: &dyn Rows<S>,
    out: &mut [E],
) {
    let (rows, cols) = param.size();
    assert!(out.len() == rows * cols, "param_value: shapes disagree");
    if cols == 0 {
        return;
    }
    let chunk = rows_per_chunk(cols) * cols;
    chunks_mut(services, out, chunk, |start, out| {
        let mut scratch = [S::ZERO; COLS];
        for (row, out) in (start / cols..).zip(out.chunks_mut(cols)) {
            for (col, out) in (0..).step_by(COLS).zip(out.chunks_mut(COLS)) {
                let (values, _) = param.window(row..row + 1, col..col + out.len(), &mut scratch);
                vectorized(
                    #[inline(always)]
                    || {
                        let pairs = out.iter_mut().zip(values);
                        pairs.for_each(|(out, &x)| *out = E::store(convert_real(x)));
                    },
                );
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::check;
    use crate::matmul::Dense;

    #[test]
    fn every_element_is_there_in_its_place() {
        for [n, m] in [[1, 1], [3, 700], [70, 300]] {
            let weight = check::floats(&check::numbers(n * m, 1));
            let run = |services: &dyn Services| {
                let dense = Dense::new(&weight, n, m);
                let (mut wide, mut half) = (vec![0.0f32; n * m], vec![bf16::ZERO; n * m]);
                param_value::<f32, f32>(services, &dense, &mut wide);
                param_value::<f32, bf16>(services, &dense, &mut half);
                (wide, half)
            };
            check::same_on_two_threads(run);
            let (wide, half) = run(&check::TwoThreads);
            assert_eq!(wide, weight);
            let rounded: Vec<bf16> = weight.iter().map(|&x| bf16::from_f32(x)).collect();
            assert_eq!(half, rounded);
        }
    }
}
