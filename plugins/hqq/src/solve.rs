//! Groups with a scale and a first zero -> the zeros of the half-quadratic solver.
//!
//! An iteration rounds every weight, shrinks the errors, and takes the mean of the residuals as the
//! group's next zero. It stops for all groups at once, when the mean error of the whole weight no
//! longer falls. To read the weight from memory less often, zeros of [`RUN`] iterations are
//! computed while a group is in the cache. Then their errors are computed, and with them the
//! iteration at which the solver stopped.
//!
//! Sums are added in torch's order ([`espalier_kernels::cascade`]): the error falls by less than
//! its rounding before it rises, and the last iteration depends on it.

mod columns;
mod error;
mod rows;

use std::sync::Mutex;

use espalier_interface::Result;
use espalier_kernels::simd::vectorized;

use crate::code::code;
use crate::grouping::{Affine, Axis};
use crate::problem::Problem;
use crate::profile::ITERATIONS;
use crate::shrink::Shrinking;
pub use error::count_sums;

/// Iterations between two checks of their errors.
pub const RUN: usize = 4;

/// Workspace of the solver.
pub struct Scratch<'a> {
    /// A first zero of every group, and the zeros after each iteration of a run, [RUN + 1, count]
    /// f32.
    pub zeros: &'a mut [f32],
    /// Partial sums of errors, [blocks, RUN, 32] f32.
    pub sums: &'a mut [f32],
}

/// Solves for the zeros, given the first in `scratch.zeros`; the result is at its start.
///
/// # Errors
/// `CANCELLED` when the user stopped the run.
///
/// # Source
/// hqq 0.2.8 and 0.1.7 `core/optimize.py`, `optimize_weights_proximal_legacy`.
pub fn solve(problem: &Problem, scale: &[f32], scratch: Scratch) -> Result<()> {
    const { assert!(ITERATIONS.is_multiple_of(RUN)) };
    let Scratch { zeros, sums } = scratch;
    let count = problem.groups.count;
    let steps = problem.profile.inverse_betas().map(Shrinking::by);
    let mut best = problem.profile.first_best();
    for steps in steps.chunks_exact(RUN) {
        advance(problem, scale, steps, zeros);
        problem.heed_cancel()?;
        error::add_up(problem, scale, zeros, sums);
        problem.heed_cancel()?;
        for iteration in 0..RUN {
            let zero = &zeros[iteration * count..][..count];
            let error = error::mean(problem, Affine { scale, zero }, sums, iteration);
            let falls = error < best; // An error that is NaN ends it, too.
            if !falls {
                let last = (iteration + 1) * count;
                zeros.copy_within(last..last + count, 0);
                return Ok(());
            }
            best = error;
        }
        zeros.copy_within(RUN * count.., 0);
    }
    Ok(())
}

/// Computes the zeros of a run of iterations from the first, [RUN + 1, count].
fn advance(problem: &Problem, scale: &[f32], steps: &[Shrinking], zeros: &mut [f32]) {
    let width = problem.stripe();
    let mut stripes: Vec<Mutex<Vec<&mut [f32]>>> = Vec::new();
    stripes.resize_with(problem.groups.count.div_ceil(width), Mutex::default);
    for iteration in zeros.chunks_exact_mut(problem.groups.count) {
        for (stripe, zero) in stripes.iter_mut().zip(iteration.chunks_mut(width)) {
            stripe.get_mut().expect("no thread has it yet").push(zero);
        }
    }
    problem.services.parallel_for(stripes.len(), &|i| {
        if problem.services.cancelled() {
            return;
        }
        let mut zeros = stripes[i].lock().expect("each stripe is taken once");
        let stripe = Stripe {
            problem,
            first: i * width,
            scale: problem.stripe_of(scale, i),
            steps,
        };
        vectorized(
            #[inline(always)]
            || match problem.groups.axis {
                Axis::Consecutive => rows::advance(&stripe, &mut zeros),
                Axis::Strided => columns::advance(&stripe, &mut zeros),
            },
        );
    });
}

/// A range of groups.
struct Stripe<'a> {
    problem: &'a Problem<'a>,
    /// Number of the first.
    first: usize,
    /// Their scales.
    scale: &'a [f32],
    /// How each iteration shrinks errors.
    steps: &'a [Shrinking],
}

/// How far the weights of a group may be from their decoded values.
#[derive(Clone, Copy, Default)]
struct Reach {
    low: f32,
    high: f32,
}

impl Reach {
    /// False where every error of the group certainly shrinks to zero.
    #[inline(always)]
    fn remains(self, scale: f32, zero: f32, top: f32, shrinking: Shrinking) -> bool {
        // Half a code where it is within the codes, more beyond their ends; plus the rounding
        // error.
        let beyond = (self.high * scale + zero - top).max(-(self.low * scale + zero));
        let error = beyond.max(0.5) / scale * 1.001 + 1e-6 * self.high.abs().max(self.low.abs());
        !shrinking.leaves_nothing_of(error)
    }
}

/// A weight's residual where its error may not shrink to zero: `code - (weight - shrunk error)
/// scale`.
#[inline(always)]
fn residual_with_rest(w: f32, scale: f32, zero: f32, top: f32, shrinking: Shrinking) -> f32 {
    let code = code(w, scale, zero, top);
    let error = w - (code - zero) / scale;
    code - (w - shrinking.of(error)) * scale
}

/// A weight's residual where its error shrinks to zero.
#[inline(always)]
fn residual(w: f32, scale: f32, zero: f32, top: f32) -> f32 {
    code(w, scale, zero, top) - w * scale
}
