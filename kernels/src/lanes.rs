//! A row -> its sum, maximum or dot product, in a fixed number of lanes that the compiler
//! vectorises.
//!
//! Element `i` goes to lane `i % LANES`; the lanes are then added in halves. The order is part of
//! the result, so it is the same for every instruction set.

use crate::element::{Element, Real};

/// Sums in parallel lanes.
pub const LANES: usize = 32;

/// `sum_i f(x_i)`.
#[inline(always)]
pub fn sum<E: Element>(x: &[E], f: impl Fn(E::Acc) -> E::Acc) -> E::Acc {
    let mut lanes = [E::Acc::ZERO; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane += f(v.load());
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane += f(v.load());
    }
    fold(lanes)
}

/// `sum_i f(x_i, y_i)`.
#[inline(always)]
pub fn sum2<A: Element, B: Element<Acc = A::Acc>>(
    x: &[A],
    y: &[B],
    f: impl Fn(A::Acc, A::Acc) -> A::Acc,
) -> A::Acc {
    let mut lanes = [A::Acc::ZERO; LANES];
    let (mut xs, mut ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    for (x, y) in (&mut xs).zip(&mut ys) {
        for ((lane, &v), &w) in lanes.iter_mut().zip(x).zip(y) {
            *lane += f(v.load(), w.load());
        }
    }
    for ((lane, &v), &w) in lanes.iter_mut().zip(xs.remainder()).zip(ys.remainder()) {
        *lane += f(v.load(), w.load());
    }
    fold(lanes)
}

/// `max_i x_i`, NaN ignored; minus infinity for an empty row.
#[inline(always)]
pub fn max<E: Element>(x: &[E]) -> E::Acc {
    let mut lanes = [E::Acc::NEG_INFINITY; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane = lane.larger(v.load());
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane = lane.larger(v.load());
    }
    lanes.iter().fold(E::Acc::NEG_INFINITY, |a, &b| a.larger(b))
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
            assert_eq!(sum2(&x, &x, |a, b| a * b), squares);
            assert_eq!(max(&x), x.last().copied().unwrap_or(f64::NEG_INFINITY));
        }
    }
}
