//! A tensor -> one number: its sum of squares, its sum, or the index of a non-finite element.

use std::sync::atomic::{AtomicUsize, Ordering};

use espalier_interface::Services;

use crate::element::{Element, Real};
use crate::simd::vectorized;
use crate::split::{CHUNK, chunks_mut};

/// Sums that run side by side in a chunk.
const LANES: usize = 16;

/// Partial sums that a tensor of `n` elements needs as workspace.
pub const fn partials(n: usize) -> usize {
    n.div_ceil(CHUNK)
}

/// `sum_i x_i^2`, in f64, by a tree that depends on the length alone.
///
/// # Shapes
/// `x`: `n` elements; `workspace`: [`partials`]`(n)`, overwritten.
pub fn sum_squares<E: Element>(services: &dyn Services, x: &[E], workspace: &mut [f64]) -> f64 {
    reduce(
        services,
        x,
        workspace,
        #[inline(always)]
        |v| v * v,
    )
}

/// `sum_i x_i`, in f64, by the same tree.
///
/// # Shapes
/// As [`sum_squares`].
pub fn sum<E: Element>(services: &dyn Services, x: &[E], workspace: &mut [f64]) -> f64 {
    reduce(
        services,
        x,
        workspace,
        #[inline(always)]
        |v| v,
    )
}

fn reduce<E: Element>(
    services: &dyn Services,
    x: &[E],
    workspace: &mut [f64],
    f: impl Fn(f64) -> f64 + Copy + Sync,
) -> f64 {
    assert!(
        workspace.len() == partials(x.len()),
        "a reduction's workspace has the wrong length"
    );
    chunks_mut(services, workspace, 1, |idx, partial| {
        let end = ((idx + 1) * CHUNK).min(x.len());
        partial[0] = vectorized(
            #[inline(always)]
            || {
                let mut lanes = [0.0f64; LANES];
                for chunk in x[idx * CHUNK..end].chunks(LANES) {
                    for (lane, &v) in lanes.iter_mut().zip(chunk) {
                        *lane += f(v.load().to_f64());
                    }
                }
                lanes.iter().sum()
            },
        );
    });
    workspace.iter().sum()
}

/// The index of the first element that is NaN or infinite.
pub fn first_non_finite<E: Element>(services: &dyn Services, x: &[E]) -> Option<usize> {
    let first = AtomicUsize::new(usize::MAX);
    services.parallel_for(x.len().div_ceil(CHUNK), &|idx| {
        let start = idx * CHUNK;
        let chunk = &x[start..(start + CHUNK).min(x.len())];
        // Counting has no early exit, so it vectorises; the search runs only where one exists.
        let wrong = vectorized(
            #[inline(always)]
            || {
                chunk
                    .iter()
                    .map(|v| u32::from(!v.load().finite()))
                    .sum::<u32>()
            },
        );
        if wrong > 0 {
            let at = chunk
                .iter()
                .position(|v| !v.load().finite())
                .expect("one was counted");
            first.fetch_min(start + at, Ordering::Relaxed);
        }
    });
    match first.into_inner() {
        usize::MAX => None,
        at => Some(at),
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;
    use half::bf16;

    use super::*;
    use crate::check;

    #[test]
    fn squares_add_up_on_any_threads() {
        let x = check::numbers(3 * CHUNK + 5, 1);
        let run =
            |services: &dyn Services| sum_squares(services, &x, &mut vec![0.0; partials(x.len())]);
        check::same_on_two_threads(run);
        assert!((run(&Serial) - check::dot(&x, &x)).abs() < 1e-9 * run(&Serial));
        assert_eq!(sum(&Serial, &[1.0f32, 2.5, -1.0], &mut [0.0]), 2.5);
        assert_eq!(sum_squares::<f32>(&Serial, &[], &mut []), 0.0);
    }

    #[test]
    fn the_first_of_several_is_found() {
        let mut x = vec![1.0f32; 2 * CHUNK];
        assert_eq!(first_non_finite(&Serial, &x), None);
        x[CHUNK + 3] = f32::NAN;
        x[CHUNK + 9] = f32::INFINITY;
        assert_eq!(first_non_finite(&check::TwoThreads, &x), Some(CHUNK + 3));
        x[2] = f32::NEG_INFINITY;
        assert_eq!(first_non_finite(&check::TwoThreads, &x), Some(2));
        assert_eq!(first_non_finite(&Serial, &[bf16::ONE, bf16::NAN]), Some(1));
    }
}
