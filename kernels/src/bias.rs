//! Rows plus a bias, and rows of gradients -> the bias's gradient.

use espalier_interface::Services;

use crate::element::{Element, Real, convert_real};
use crate::rms_norm::SPAN;
use crate::simd::vectorized;
use crate::split::{chunks_mut, rows_per_chunk};

/// Columns of the gradient that one thread sums.
const COLUMNS: usize = 64;

/// Writes `y_td = x_td + bias_d`.
///
/// # Shapes
/// `x`, `y`: `[T, D]`; `bias`: `[D]`, in any float dtype.
pub fn add_bias<E: Element, W: Element>(services: &dyn Services, x: &[E], bias: &[W], y: &mut [E]) {
    let width = bias.len();
    assert!(
        x.len() == y.len() && x.len().is_multiple_of(width),
        "add_bias: shapes disagree"
    );
    chunks_mut(services, y, rows_per_chunk(width) * width, |start, y| {
        vectorized(
            #[inline(always)]
            || {
                let x = &x[start..start + y.len()];
                for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
                    for ((y, &x), &b) in y.iter_mut().zip(x).zip(bias) {
                        *y = E::store(x.load() + convert_real(b.load()));
                    }
                }
            },
        );
    });
}

/// Adds `dbias_d += sum_t dy_td`, tokens in order, in spans of 64.
///
/// # Shapes
/// `dy`: `[T, D]`; `dbias`: `[D]`.
pub fn bias_backward<E: Element, G: Element>(services: &dyn Services, dy: &[E], dbias: &mut [G]) {
    let width = dbias.len();
    assert!(
        dy.len().is_multiple_of(width),
        "bias_backward: rows are not whole"
    );
    chunks_mut(services, dbias, COLUMNS, |start, dbias| {
        vectorized(
            #[inline(always)]
            || {
                let mut total = [E::Acc::ZERO; COLUMNS];
                for span in dy.chunks(SPAN * width) {
                    let mut partial = [E::Acc::ZERO; COLUMNS];
                    for row in span.chunks_exact(width) {
                        let row = &row[start..start + dbias.len()];
                        partial
                            .iter_mut()
                            .zip(row)
                            .for_each(|(sum, &dy)| *sum += dy.load());
                    }
                    total
                        .iter_mut()
                        .zip(&partial)
                        .for_each(|(total, &sum)| *total += sum);
                }
                for (db, &sum) in dbias.iter_mut().zip(&total) {
                    *db = G::store(db.load() + convert_real(sum));
                }
            },
        );
    });
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;
    use crate::check;

    #[test]
    fn gradient_is_the_difference() {
        let (t, d) = (4, 9);
        let (x, bias, dy) = (
            check::numbers(t * d, 1),
            check::numbers(d, 2),
            check::numbers(t * d, 3),
        );
        let mut db = vec![0.0f64; d];
        bias_backward(&Serial, &dy, &mut db);
        let loss = |bias: &[f64]| {
            let mut y = vec![0.0; t * d];
            add_bias(&Serial, &x, bias, &mut y);
            check::dot(&y, &dy)
        };
        check::gradient(loss, &bias, &db);
    }

    #[test]
    fn threads_agree() {
        let (t, d) = (200, 300);
        let dy = check::floats(&check::numbers(t * d, 3));
        check::same_on_two_threads(|services| {
            let mut db = vec![1.0f32; d];
            bias_backward(services, &dy, &mut db);
            db
        });
    }
}
