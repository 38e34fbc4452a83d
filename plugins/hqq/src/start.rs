//! The ends of every group -> the scale and the zero that the solver starts from; numbers that are
//! not finite are refused.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use espalier_interface::{ErrorCode, PluginError, Result};
use espalier_kernels::simd::vectorized;

use crate::grouping::Axis;
use crate::problem::Problem;

/// Whether the zero starts at a whole code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartZero {
    /// Computed from the smallest weight of the group.
    Exact,
    /// Rounded, half to even.
    Rounded,
}

/// Fills `scale` and `zero`, [count] f32 each.
///
/// # Errors
/// `NOT_FINITE`, naming the first weight that is infinite or NaN.
///
/// # Source
/// hqq 0.2.8 and 0.1.7 `core/quantize.py`, `Quantizer.quantize`.
pub fn start(
    problem: &Problem,
    start_zero: StartZero,
    scale: &mut [f32],
    zero: &mut [f32],
) -> Result<()> {
    let stripe = problem.stripe();
    let stripes: Vec<Mutex<_>> = scale
        .chunks_mut(stripe)
        .zip(zero.chunks_mut(stripe))
        .map(Mutex::new)
        .collect();
    let finite = AtomicBool::new(true);
    problem.services.parallel_for(stripes.len(), &|i| {
        let mut stripe = stripes[i].lock().expect("each stripe is taken once");
        let (scale, zero) = &mut *stripe;
        let first = i * problem.stripe();
        if !vectorized(
            #[inline(always)]
            || ends(problem, first, scale, zero),
        ) {
            finite.store(false, Ordering::Relaxed);
            return;
        }
        for (scale, zero) in scale.iter_mut().zip(zero.iter_mut()) {
            (*scale, *zero) = begin(problem, start_zero, *scale, *zero);
        }
    });
    problem.heed_cancel()?;
    if finite.into_inner() {
        Ok(())
    } else {
        Err(not_finite(problem.weight))
    }
}

/// Scale and zero of a group with these ends.
fn begin(problem: &Problem, start_zero: StartZero, low: f32, high: f32) -> (f32, f32) {
    let scale = problem.profile.scale(high - low, problem.top);
    let zero = -low * scale;
    match start_zero {
        StartZero::Exact => (scale, zero),
        StartZero::Rounded => (scale, zero.round_ties_even()),
    }
}

fn not_finite(weight: &[f32]) -> PluginError {
    let index = weight.iter().position(|w| !w.is_finite());
    let index = index.expect("one was found");
    PluginError::new(
        ErrorCode::NOT_FINITE,
        format!(
            "weight {index} of {} is {}, expected a finite number; the checkpoint is damaged or was saved from a \
             diverged run",
            weight.len(),
            weight[index]
        ),
    )
}

/// The smallest and the largest weight of the groups from `first` on; false where one of them is
/// not finite.
#[inline(always)]
pub fn ends(problem: &Problem, first: usize, low: &mut [f32], high: &mut [f32]) -> bool {
    let size = problem.groups.size;
    let mut largest = 0;
    match problem.groups.axis {
        Axis::Consecutive => {
            let groups = problem.weight[first * size..].chunks_exact(size);
            for ((group, low), high) in groups.zip(low).zip(high) {
                let mut lane_low = [f32::INFINITY; 8];
                let mut lane_high = [f32::NEG_INFINITY; 8];
                let mut lane_largest = [0; 8];
                let vectors = group.chunks_exact(8);
                let rest = vectors.remainder();
                for vector in vectors {
                    widen(vector, &mut lane_low, &mut lane_high, &mut lane_largest);
                }
                widen(rest, &mut lane_low, &mut lane_high, &mut lane_largest);
                *low = lane_low.into_iter().fold(f32::INFINITY, smaller);
                *high = lane_high.into_iter().fold(f32::NEG_INFINITY, larger);
                largest = lane_largest.into_iter().fold(largest, i32::max);
            }
        }
        Axis::Strided => {
            low.fill(f32::INFINITY);
            high.fill(f32::NEG_INFINITY);
            let mut lane_largest = vec![0; low.len()];
            for row in problem.weight.chunks_exact(problem.groups.count) {
                widen(&row[first..first + low.len()], low, high, &mut lane_largest);
            }
            largest = lane_largest.into_iter().fold(0, i32::max);
        }
    }
    f32::from_bits(largest as u32).is_finite()
}

/// Widens the ends, number by number, to include `weight`; `largest` is the bits of its largest
/// magnitude.
#[inline(always)]
fn widen(weight: &[f32], low: &mut [f32], high: &mut [f32], largest: &mut [i32]) {
    let ends = low.iter_mut().zip(high).zip(largest);
    for (((low, high), largest), &w) in ends.zip(weight) {
        *low = smaller(*low, w);
        *high = larger(*high, w);
        // Without its sign, a float orders as its bits do: infinity above every number, NaN above
        // that.
        *largest = (*largest).max((w.to_bits() & 0x7fff_ffff) as i32);
    }
}

/// The smaller number; `a` where one is NaN.
#[inline(always)]
pub fn smaller(a: f32, b: f32) -> f32 {
    if b < a { b } else { a }
}

/// The larger number; `a` where one is NaN.
#[inline(always)]
pub fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}
