//! Rows -> rows with each column repeated, and back to sums; a param -> rows that repeat it.
//!
//! With `R` repeats and `L` tiles, column `m` of `M` becomes the columns `(l M + m) R + r`.

use espalier_interface::Services;

use crate::element::{Element, Real, convert};
use crate::split::{chunks_mut, rows_per_chunk};
use crate::{lanes, simd::vectorized};

/// Writes each column `repeat` times, then the row `tile` times.
///
/// # Shapes
/// `x`: `[T, M]`; `y`: `[T, M R L]`, `width` is `M R L`.
pub fn expand<E: Element>(
    services: &dyn Services,
    x: &[E],
    [repeat, tile]: [usize; 2],
    width: usize,
    y: &mut [E],
) {
    let columns = columns(width, [repeat, tile]);
    assert!(
        y.len().is_multiple_of(width) && x.len() == y.len() / width * columns,
        "expand: shapes disagree"
    );
    chunks_mut(services, y, rows_per_chunk(width) * width, |start, y| {
        let x = &x[start / width * columns..];
        for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(width)) {
            for tile in y.chunks_exact_mut(columns * repeat) {
                if repeat == 1 {
                    tile.copy_from_slice(x);
                    continue;
                }
                for (&x, y) in x.iter().zip(tile.chunks_exact_mut(repeat)) {
                    y.fill(x);
                }
            }
        }
    });
}

/// Writes the sum of the columns that [`expand`] makes of each. Repeats are summed in lanes, tiles
/// in order.
///
/// # Shapes
/// `x`: `[T, M R L]`, `width` is `M R L`; `y`: `[T, M]`.
pub fn contract<E: Element>(
    services: &dyn Services,
    x: &[E],
    [repeat, tile]: [usize; 2],
    width: usize,
    y: &mut [E],
) {
    let columns = columns(width, [repeat, tile]);
    assert!(
        x.len().is_multiple_of(width) && y.len() == x.len() / width * columns,
        "contract: shapes disagree"
    );
    chunks_mut(services, y, rows_per_chunk(width) * columns, |start, y| {
        let x = &x[start / columns * width..];
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(columns)) {
            vectorized(
                #[inline(always)]
                || {
                    for (column, y) in y.iter_mut().enumerate() {
                        let mut total = E::Acc::ZERO;
                        for tile in x.chunks_exact(columns * repeat) {
                            let part = &tile[column * repeat..(column + 1) * repeat];
                            total += match part {
                                [one] => one.load(),
                                _ => lanes::sum(
                                    part,
                                    #[inline(always)]
                                    |x| x,
                                ),
                            };
                        }
                        *y = E::store(total);
                    }
                },
            );
        }
    });
}

/// `M` of `M R L` columns.
///
/// # Panics
/// Where the columns are no multiple of `R L`.
fn columns(width: usize, [repeat, tile]: [usize; 2]) -> usize {
    assert!(
        width > 0 && width.is_multiple_of(repeat * tile),
        "{width} columns are not {repeat} x {tile} of some"
    );
    width / (repeat * tile)
}

/// Writes the weight into each row, as often as it fits.
///
/// # Shapes
/// `weight`: `[N]`, in any float dtype; `y`: `[T, N L]`.
pub fn broadcast_param<E: Element, W: Element>(services: &dyn Services, weight: &[W], y: &mut [E]) {
    let width = weight.len();
    assert!(
        width > 0 && y.len().is_multiple_of(width),
        "broadcast_param: shapes disagree"
    );
    chunks_mut(services, y, rows_per_chunk(width) * width, |_, y| {
        for y in y.chunks_exact_mut(width) {
            for (y, &weight) in y.iter_mut().zip(weight) {
                *y = convert(weight);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;
    use half::bf16;

    use super::*;
    use crate::check;

    #[test]
    fn columns_are_repeated_then_rows_tiled() {
        let x = [1.0f32, 2.0, 3.0, 4.0];
        let mut y = [0.0; 16];
        expand(&Serial, &x, [2, 2], 8, &mut y);
        assert_eq!(
            y,
            [
                1., 1., 2., 2., 1., 1., 2., 2., 3., 3., 4., 4., 3., 3., 4., 4.
            ]
        );
        let mut sums = [0.0; 4];
        contract(&Serial, &y, [2, 2], 8, &mut sums);
        assert_eq!(sums, x.map(|x| 4.0 * x));
    }

    #[test]
    fn a_contraction_is_the_transpose_of_an_expansion() {
        let (t, m) = (5, 6);
        for [repeat, tile] in [[1, 1], [7, 1], [1, 5], [33, 4]] {
            let width = m * repeat * tile;
            let (x, z) = (check::numbers(t * m, 1), check::numbers(t * width, 2));
            let (mut wide, mut narrow) = (vec![0.0; t * width], vec![0.0; t * m]);
            expand(&Serial, &x, [repeat, tile], width, &mut wide);
            contract(&Serial, &z, [repeat, tile], width, &mut narrow);
            let (a, b) = (check::dot(&wide, &z), check::dot(&x, &narrow));
            assert!((a - b).abs() < 1e-10, "{a} {b}");
        }
    }

    #[test]
    fn threads_agree_and_a_param_stands_in_each_row() {
        let (t, width) = (300, 128);
        let x = check::floats(&check::numbers(t * width, 1));
        check::same_on_two_threads(|services| {
            let (mut y, mut wide) = (vec![0f32; t], vec![0f32; t * width]);
            contract(services, &x, [width, 1], width, &mut y);
            expand(services, &y, [width, 1], width, &mut wide);
            (y, wide)
        });
        let mut y = [bf16::ZERO; 6];
        broadcast_param(&Serial, &[1.0f32, 1.0 + 1.0 / 256.0, -2.0], &mut y);
        assert_eq!(y.map(bf16::to_f32), [1.0, 1.0, -2.0, 1.0, 1.0, -2.0]);
    }
}
