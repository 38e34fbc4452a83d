//! A row of logits -> exponentials, their sum and the factor of earlier sums.
//!
//! Sums run in [`LANES`] lanes for vectors of any width, so that bits do not depend on it.

use crate::element::Real;

/// Lanes of a sum.
const LANES: usize = 16;

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
        let shrink = (before - most).exp();
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
    lanes.into_iter().fold(S::NEG_INFINITY, S::larger)
}

/// The sum of `values`, in lanes and then across them.
#[inline(always)]
pub(super) fn sum<S: Real>(values: &[S]) -> S {
    dot_by(values.len(), |i| values[i])
}

/// The sum of `term(0) .. term(len - 1)`, in lanes and then across them.
#[inline(always)]
pub(super) fn dot_by<S: Real>(len: usize, term: impl Fn(usize) -> S) -> S {
    let mut lanes = [S::ZERO; LANES];
    let whole = len / LANES * LANES;
    for start in (0..whole).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(start + lane);
        }
    }
    for (lane, i) in (whole..len).enumerate() {
        lanes[lane] += term(i);
    }
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            let other = lanes[lane + half];
            lanes[lane] += other;
        }
    }
    lanes[0]
}

/// Logits -> `c tanh(l / c)`.
#[inline(always)]
pub(super) fn cap<S: Real>(logits: &mut [S], softcap: S) {
    logits
        .iter_mut()
        .for_each(|x| *x = softcap * (*x / softcap).tanh());
}
