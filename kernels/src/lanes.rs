//! A row -> its sum, maximum or dot product, in a fixed number of lanes that the compiler
//! vectorises.
//!
//! Element `i` goes to lane `i % LANES`; the lanes are then added in halves. The order is part of
//! the result, so it is the same for every instruction set.

use std::ops::Range;

use crate::element::{Element, Real};
use crate::matmul::same;

/// Sums in parallel lanes.
pub const LANES: usize = 32;
/// Values that are made before they are added. Compilers take a loop that widens and adds apart
/// into single elements.
const SOME: usize = 8 * LANES;

/// `sum_i f(x_i)`.
#[inline(always)]
pub fn sum<E: Element>(x: &[E], f: impl Fn(E::Acc) -> E::Acc) -> E::Acc {
    let mut lanes = [E::Acc::ZERO; LANES];
    each_wide(
        x,
        #[inline(always)]
        |values| add(&mut lanes, values, &f),
    );
    fold(lanes)
}

/// The sum of `len` values; `fill(range, values)` gives some of them.
#[inline(always)]
pub fn sum_each<R: Real>(len: usize, fill: impl Fn(Range<usize>, &mut [R])) -> R {
    let mut lanes = [R::ZERO; LANES];
    let mut space = [R::ZERO; SOME];
    for first in (0..len).step_by(SOME) {
        let at = first..(first + SOME).min(len);
        let values = &mut space[..at.len()];
        fill(at, values);
        add(
            &mut lanes,
            values,
            #[inline(always)]
            |v| v,
        );
    }
    fold(lanes)
}

/// `max_i x_i`, NaN ignored; minus infinity for an empty row.
#[inline(always)]
pub fn max<E: Element>(x: &[E]) -> E::Acc {
    let mut lanes = [E::Acc::NEG_INFINITY; LANES];
    each_wide(
        x,
        #[inline(always)]
        |values| {
            let mut chunks = values.chunks_exact(LANES);
            for chunk in &mut chunks {
                for (lane, &v) in lanes.iter_mut().zip(chunk) {
                    *lane = lane.larger(v);
                }
            }
            for (lane, &v) in lanes.iter_mut().zip(chunks.remainder()) {
                *lane = lane.larger(v);
            }
        },
    );
    lanes.iter().fold(E::Acc::NEG_INFINITY, |a, &b| a.larger(b))
}

/// Adds `f` of values to the lanes, from the first on.
#[inline(always)]
fn add<R: Real>(lanes: &mut [R; LANES], values: &[R], f: impl Fn(R) -> R) {
    let mut chunks = values.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane += f(v);
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane += f(v);
    }
}

/// Calls `take` with all of a row, or with some widened values of it after the other: each time a
/// multiple of [`LANES`], but for the last.
#[inline(always)]
fn each_wide<E: Element>(x: &[E], mut take: impl FnMut(&[E::Acc])) {
    if let Some(x) = same::<E, E::Acc>(x) {
        return take(x);
    }
    let mut space = [E::Acc::ZERO; SOME];
    for x in x.chunks(SOME) {
        let values = &mut space[..x.len()];
        for (value, x) in values.iter_mut().zip(x) {
            *value = x.load();
        }
        take(values);
    }
}

/// The lanes added in halves.
#[inline(always)]
fn fold<R: Real>(mut lanes: [R; LANES]) -> R {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_and_ragged_rows_add_up() {
        for n in [0usize, 1, 31, 32, 33, 100] {
            let x: Vec<f64> = (0..n).map(|i| i as f64 - 7.0).collect();
            assert_eq!(sum(&x, |v| v), x.iter().sum::<f64>());
            let squares = x.iter().map(|v| v * v).sum::<f64>();
            assert_eq!(sum(&x, |v| v * v), squares);
            assert_eq!(max(&x), x.last().copied().unwrap_or(f64::NEG_INFINITY));
        }
    }
}
