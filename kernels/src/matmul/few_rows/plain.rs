//! A part of a product of few rows in plain loops: for f64, for the build's own instructions and
//! for the model of those for bf16.
#![allow(unsafe_code)] // Raw rows.

use super::{LANES, Part};
use crate::element::{Element, Real, convert_real};
use crate::matmul::scalar::Scalar;
use crate::matmul::{Isa, Update, bf16_model};
use crate::simd::vectorized;

/// Multiplies a part by `lanes` rows of the weight, `stride` elements apart.
///
/// # Safety
/// The CPU can run `isa`; the part's rows and sums have room for it, and the weight's rows hold
/// its depth.
pub(super) unsafe fn multiply<W: Element, S: Scalar>(
    isa: Isa,
    part: Part<S>,
    (weight, stride): (*const W, usize),
    lanes: usize,
) {
    let load = |lane: usize, k: usize| -> S {
        // SAFETY: an element of the weight's row.
        convert_real(unsafe { (*weight.add(lane * stride + k)).load() })
    };
    match isa {
        Isa::Bf16Model if S::DTYPE == f32::DTYPE => {
            let bits = |lane: usize, k: usize| {
                let is_there = k < part.depth;
                let round = || u32::from(bf16_model::round(load(lane, k).to_f64() as f32));
                is_there.then(round).unwrap_or(0)
            };
            let pair = |lane: usize, step: usize| {
                f32::from_bits(bits(lane, 2 * step) | bits(lane, 2 * step + 1) << 16)
            };
            let steps = part.depth.div_ceil(2);
            // SAFETY: `S` is f32; else the caller's promises.
            unsafe { chains(part.cast(), steps, lanes, pair, bf16_model::dot_pairs) };
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx2 => vectorized(
            #[inline(always)]
            || {
                // SAFETY: the caller's promises.
                unsafe { chains(part, part.depth, lanes, load, S::fused) }
            },
        ),
        _ => {
            // SAFETY: the caller's promises.
            unsafe { chains(part, part.depth, lanes, load, multiply_add) }
        }
    }
}

/// `a b + sum`, fused where the build's target fuses.
fn multiply_add<S: Scalar>(a: S, b: S, sum: S) -> S {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
        S::fused(a, b, sum)
    } else {
        sum + a * b
    }
}

/// A chain of steps for each row and lane.
///
/// # Safety
/// The part's rows and sums have room for `steps` and `lanes`.
#[inline(always)]
unsafe fn chains<S: Real>(
    part: Part<S>,
    steps: usize,
    lanes: usize,
    weight: impl Fn(usize, usize) -> S,
    step: impl Fn(S, S, S) -> S,
) {
    for row in 0..part.rows {
        let mut sums = [S::ZERO; LANES];
        let sums = &mut sums[..lanes];
        for k in 0..steps {
            // SAFETY: a step of the part.
            let x = unsafe { *part.left.0.add(k * part.left.1 + row) };
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum = step(x, weight(lane, k), *sum);
            }
        }
        for (lane, &sum) in sums.iter().enumerate() {
            // SAFETY: a sum of the part.
            let out = unsafe { &mut *part.sums.0.add(row * part.sums.1 + lane) };
            *out = match part.update {
                Update::Overwrite => sum,
                Update::Accumulate => *out + sum,
            };
        }
    }
}
