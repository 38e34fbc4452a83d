//! Rows and a number per column -> rows; rows -> sums by column, the gradients of shared numbers.

use espalier_interface::Services;

use crate::element::{Element, Real, convert_real};
use crate::simd::vectorized;
use crate::split::{chunks_mut, rows_per_chunk};

/// Columns that one thread sums.
const COLUMNS: usize = 64;

/// Rows whose contributions are summed before they are added to the total, which bounds rounding
/// errors.
const SPAN: usize = 64;

/// Writes `y_tn = apply(x_tn, weight_n)`.
///
/// # Shapes
/// `x`, `y`: `[T, N]`; `weight`: `[N]`, in any float dtype.
pub(crate) fn by_column<E: Element, W: Element>(
    services: &dyn Services,
    x: &[E],
    weight: &[W],
    y: &mut [E],
    apply: impl Fn(E::Acc, E::Acc) -> E::Acc + Copy + Sync,
) {
    let width = weight.len();
    assert!(
        x.len() == y.len() && x.len().is_multiple_of(width),
        "rows and what each column is given disagree"
    );
    chunks_mut(services, y, rows_per_chunk(width) * width, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let x = &x[start..start + y.len()];
                for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
                    for ((y, &x), &w) in y.iter_mut().zip(x).zip(weight) {
                        *y = E::store(apply(x.load(), convert_real(w.load())));
                    }
                }
            },
        );
    });
}

/// Adds to each column of `out` the contributions of `tokens` rows: tokens in order, in spans of 64
/// whose sums are added to the total.
///
/// `add(token, first, sums)` adds the contributions of one row to the columns whose first element
/// is `first`.
pub(crate) fn add_sums<E: Element, G: Element>(
    services: &dyn Services,
    tokens: usize,
    out: &mut [G],
    add: impl Fn(usize, usize, &mut [E::Acc]) + Copy + Sync,
) {
    let width = out.len();
    chunks_mut(services, out, COLUMNS, |start, out| {
        vectorized(
            #[inline(always)]
            move || {
                let mut total = [E::Acc::ZERO; COLUMNS];
                for span in (0..tokens).step_by(SPAN) {
                    let mut partial = [E::Acc::ZERO; COLUMNS];
                    for token in span..tokens.min(span + SPAN) {
                        add(token, token * width + start, &mut partial[..out.len()]);
                    }
                    total
                        .iter_mut()
                        .zip(&partial)
                        .for_each(|(total, &sum)| *total += sum);
                }
                for (out, &sum) in out.iter_mut().zip(&total) {
                    *out = G::store(out.load() + convert_real(sum));
                }
            },
        );
    });
}
