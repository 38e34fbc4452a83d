//! Axis 1: the zeros of groups whose weights are consecutive.

use espalier_kernels::cascade::{LANES, sum_lanes, sum_vectors};

use super::{Reach, Stripe, residual, residual_with_rest};
use crate::shrink::Shrinking;
use crate::start::ends;

/// Weights that stay in the first cache over a run of iterations.
const TILE: usize = 1 << 12;

/// Computes the zeros of a run of iterations, [RUN + 1][groups of the stripe], from the first.
#[inline(always)]
pub fn advance(stripe: &Stripe, zeros: &mut [&mut [f32]]) {
    let size = stripe.problem.groups.size;
    let tile = (TILE / size).max(1);
    let mut residuals = vec![0.0; size];
    let mut low = vec![0.0; tile];
    let mut high = vec![0.0; tile];
    for at in (0..stripe.scale.len()).step_by(tile) {
        let groups = at..(at + tile).min(stripe.scale.len());
        let (low, high) = (&mut low[..groups.len()], &mut high[..groups.len()]);
        ends(stripe.problem, stripe.first + at, low, high);
        // Groups within iterations: sums of neighbouring groups are independent.
        for (iteration, &shrinking) in stripe.steps.iter().enumerate() {
            let (before, after) = zeros.split_at_mut(iteration + 1);
            for group in groups.clone() {
                let reach = Reach {
                    low: low[group - at],
                    high: high[group - at],
                };
                let zero = before[iteration][group];
                let affine = (stripe.scale[group], zero);
                let first = (stripe.first + group) * size;
                let weight = &stripe.problem.weight[first..first + size];
                let top = stripe.problem.top;
                let remains = reach.remains(affine.0, zero, top, shrinking);
                if !remains && iteration > 0 && before[iteration - 1][group] == zero {
                    // Converged: the same zero gives the same result.
                    after[0][group] = zero;
                    continue;
                }
                let shrinking = remains.then_some(shrinking);
                fill(weight, affine, top, shrinking, &mut residuals);
                after[0][group] = mean(&residuals);
            }
        }
    }
}

/// The residuals of a group; `shrinking` is set where errors may not shrink to zero.
#[inline(always)]
fn fill(
    weight: &[f32],
    (scale, zero): (f32, f32),
    top: f32,
    shrinking: Option<Shrinking>,
    residuals: &mut [f32],
) {
    let residuals = residuals.iter_mut().zip(weight);
    // Plain loops: iterators are compiled for any processor.
    match shrinking {
        Some(shrinking) => {
            for (r, &w) in residuals {
                *r = residual_with_rest(w, scale, zero, top, shrinking);
            }
        }
        None => {
            for (r, &w) in residuals {
                *r = residual(w, scale, zero, top);
            }
        }
    }
}

#[inline(always)]
fn mean(residuals: &[f32]) -> f32 {
    let (vectors, _) = residuals.as_chunks::<LANES>();
    sum_lanes(sum_vectors(vectors), &[]) / residuals.len() as f32
}
