//! Rows of logits -> exponentials, their sums and the factors of earlier sums.
//!
//! Sums run in [`LANES`] lanes for vectors of any width, so that bits do not depend on it.

use std::ops::Range;

use crate::element::{Element, Real};

/// Lanes of a sum.
pub(super) const LANES: usize = 16;

/// `seen` and what follows it in a row of `len` elements up to whole lanes. With logits of minus
/// infinity there, loops over the keys seen end with a whole vector and have the same results.
#[inline(always)]
pub(super) fn whole_lanes(seen: &Range<usize>, len: usize) -> Range<usize> {
    seen.start..(seen.start + seen.len().next_multiple_of(LANES)).min(len)
}

/// The factors of earlier sums where the largest logits are now `most`, not `before`.
///
/// Rows without a logit over minus infinity keep theirs, which are 0.
#[inline(always)]
pub(super) fn shrinks<S: Real, const N: usize>(before: &[S; N], most: &[S; N]) -> [S; N] {
    let mut shrinks = [S::ONE; N];
    for ((shrink, &before), &most) in shrinks.iter_mut().zip(before).zip(most) {
        let less = (before - most).exp_under_88();
        *shrink = if most == before { S::ONE } else { less };
    }
    shrinks
}

/// `logits` over `factor`, none of them over `most` -> `exp(logit - most)`, and their sum in lanes.
/// With `FUSED`, by fused multiply-adds; else `factor` is 1.
#[inline(always)]
pub(super) fn exponentials<S: Real, const FUSED: bool>(
    logits: &mut [S],
    factor: S,
    most: S,
) -> [S; LANES] {
    let weigh = |x: S| {
        if FUSED {
            x.mul_add(factor, -most).exp_fused()
        } else {
            (x - most).exp_under_88()
        }
    };
    let mut lanes = [S::ZERO; LANES];
    let (whole, rest) = logits.as_chunks_mut::<LANES>();
    for chunk in whole {
        for idx in 0..LANES {
            chunk[idx] = weigh(chunk[idx]);
            lanes[idx] += chunk[idx];
        }
    }
    if !rest.is_empty() {
        rest.iter_mut().for_each(|x| *x = weigh(*x));
        let rest = filled_up(rest, S::ZERO);
        for idx in 0..LANES {
            lanes[idx] += rest[idx];
        }
    }
    lanes
}

/// The largest of `values` in lanes.
#[inline(always)]
pub(super) fn largest<S: Real>(values: &[S]) -> [S; LANES] {
    let mut lanes = [S::NEG_INFINITY; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = lane.larger(x);
        }
    }
    if !rest.is_empty() {
        for (lane, x) in lanes.iter_mut().zip(filled_up(rest, S::NEG_INFINITY)) {
            *lane = lane.larger(x);
        }
    }
    lanes
}

/// `values`, fewer than a vector's, and `with` in the lanes after them.
#[inline(always)]
fn filled_up<S: Real>(values: &[S], with: S) -> [S; LANES] {
    let mut lanes = [with; LANES];
    lanes[..values.len()].copy_from_slice(values);
    lanes
}

/// The sum of products, in lanes and then across them.
#[inline(always)]
pub(super) fn dot<E: Element>(a: &[E], b: &[E]) -> E::Acc {
    let mut lanes = [E::Acc::ZERO; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a.load() * b.load();
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += a.load() * b.load();
    }
    across(lanes, std::ops::Add::add)
}

/// One value of all lanes: each of the first half with one of the second, until one is left.
///
/// Halves are arrays of fixed sizes: a loop over them is compiled to a branch per lane.
#[inline(always)]
pub(super) fn across<S: Real>(lanes: [S; LANES], join: impl Fn(S, S) -> S) -> S {
    let eight: [S; 8] = std::array::from_fn(|i| join(lanes[i], lanes[i + 8]));
    let four: [S; 4] = std::array::from_fn(|i| join(eight[i], eight[i + 4]));
    join(join(four[0], four[2]), join(four[1], four[3]))
}

/// Logits -> `c tanh(l / c)`.
#[inline(always)]
pub(super) fn cap<S: Real>(logits: &mut [S], softcap: S) {
    logits
        .iter_mut()
        .for_each(|x| *x = softcap * (*x / softcap).tanh());
}
