//! A row of logits -> exponentials, their sum and the factor of earlier sums.
//!
//! Sums run in [`LANES`] lanes for vectors of any width, so that bits do not depend on it.

use std::ops::Range;

use crate::element::{Element, Real};

/// Lanes of a sum.
const LANES: usize = 16;

/// `seen` and what follows it in a row of `len` elements up to whole lanes. With logits of minus
/// infinity there, loops over the keys seen end with a whole vector and have the same results.
#[inline(always)]
pub(super) fn whole_lanes(seen: &Range<usize>, len: usize) -> Range<usize> {
    seen.start..(seen.start + seen.len().next_multiple_of(LANES)).min(len)
}

/// The running maximum and sum of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running<S> {
    /// The largest logit so far.
    pub most: S,
    /// The sum of `exp(logit - most)` so far.
    pub sum: S,
}

impl<S: Real> Running<S> {
    /// Adds `logits`, which become `exp(logit - most)`, and returns the factor of all earlier ones.
    #[inline(always)]
    pub(super) fn take(&mut self, logits: &mut [S]) -> S {
        let before = self.most;
        let most = largest(logits).larger(before);
        // All logits are minus infinity (or there are none): avoids 0 / 0.
        if most == S::NEG_INFINITY {
            logits.fill(S::ZERO);
            return S::ONE;
        }
        let shrink = if most == before {
            S::ONE
        } else {
            (before - most).exp()
        };
        logits.iter_mut().for_each(|x| *x = (*x - most).exp());
        self.sum = self.sum * shrink + sum(logits);
        self.most = most;
        shrink
    }

    /// The logarithm of the sum of all exponentials.
    pub(super) fn log_sum_exp(&self) -> S {
        self.most + self.sum.ln()
    }
}

/// The largest of `values`.
#[inline(always)]
fn largest<S: Real>(values: &[S]) -> S {
    let mut lanes = [S::NEG_INFINITY; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = lane.larger(x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = lane.larger(x);
    }
    across(lanes, S::larger)
}

/// The sum of `values`, in lanes and then across them.
#[inline(always)]
fn sum<S: Real>(values: &[S]) -> S {
    let mut lanes = [S::ZERO; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += x;
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += x;
    }
    across(lanes, std::ops::Add::add)
}

/// The sum of products, in lanes and then across them.
#[inline(always)]
pub(super) fn dot<E: Element>(a: &[E::Acc], b: &[E]) -> E::Acc {
    let mut lanes = [E::Acc::ZERO; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for (lane, (&a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a * b.load();
        }
    }
    for (lane, (&a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += a * b.load();
    }
    across(lanes, std::ops::Add::add)
}

/// One value of all lanes: each of the first half with one of the second, until one is left.
///
/// Halves are arrays of fixed sizes: a loop over them is compiled to a branch per lane.
#[inline(always)]
fn across<S: Real>(lanes: [S; LANES], join: impl Fn(S, S) -> S) -> S {
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
