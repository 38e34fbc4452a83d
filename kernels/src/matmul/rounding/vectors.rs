//! Rows of sums -> bf16, 32 elements at a time.
#![allow(unsafe_code)] // Vector intrinsics.

use std::arch::x86_64::*;

use half::bf16;

use super::Sum;
use crate::added::Added;

/// The upper halves of 16 and 16 numbers.
static UPPER: [u16; 32] = {
    let mut at = [0; 32];
    let mut i = 0;
    while i < 32 {
        at[i] = 2 * i as u16 + 1;
        i += 1;
    }
    at
};

/// Sixteen numbers, rounded to bf16 in their upper halves. A NaN becomes quiet.
#[inline]
#[target_feature(enable = "avx512f")]
fn rounded(x: __m512) -> __m512i {
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
    let bits = _mm512_castps_si512(x);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    // Numbers are rounded up from a half.
    let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
    let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x40_0000));
    _mm512_mask_mov_epi32(_mm512_add_epi32(bits, half), nan, quiet)
}

/// Rounds by integers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn round_by_integers(low: __m512, high: __m512) -> Option<__m512i> {
    // SAFETY: 32 numbers.
    let upper = unsafe { _mm512_loadu_si512(UPPER.as_ptr().cast()) };
    Some(_mm512_permutex2var_epi16(
        rounded(low),
        upper,
        rounded(high),
    ))
}

/// Rounds by the instruction for it, but nothing where a number is subnormal: that takes it for 0.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512bf16")]
fn round_by_instruction(low: __m512, high: __m512) -> Option<__m512i> {
    const SUBNORMAL: i32 = 0x20;
    let [of_low, of_high] = [low, high].map(|x| _mm512_fpclass_ps_mask::<SUBNORMAL>(x));
    if of_low | of_high != 0 {
        return None;
    }
    // SAFETY: both are 512 bits that are all valid.
    Some(unsafe { std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low)) })
}

/// 32 elements in f32.
#[inline]
#[target_feature(enable = "avx512f")]
fn widened(halves: __m512i) -> [__m512; 2] {
    let [low, high] = [
        _mm512_castsi512_si256(halves),
        _mm512_extracti64x4_epi64::<1>(halves),
    ];
    [low, high]
        .map(|some| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(some))))
}

/// Storing of rows with one way to round.
macro_rules! storing {
    ($(#[$doc:meta])* $name:ident, $features:literal, $round:ident, $else:expr) => {
        $(#[$doc])*
        #[target_feature(enable = $features)]
        pub fn $name(sums: &[f32], sum: Sum<'_, bf16>, out: &mut [bf16]) -> usize {
            let whole = sums.len().min(out.len()) / 32 * 32;
            let alpha = _mm512_set1_ps(sum.alpha as f32);
            let is_scaled = sum.alpha != 1.0;
            // SAFETY: 32 elements, which slices of as many are given for.
            let load = |from: &[bf16]| widened(unsafe { _mm512_loadu_si512(from.as_ptr().cast()) });
            for at in (0..whole).step_by(32) {
                let (from, to) = (&sums[at..at + 32], &mut out[at..at + 32]);
                // SAFETY: 32 numbers.
                let [low, high] = unsafe {
                    [_mm512_loadu_ps(from.as_ptr()), _mm512_loadu_ps(from.as_ptr().add(16))]
                };
                let earlier = match sum.added {
                    Added::Nothing if !is_scaled => None,
                    // Minus zero changes no number that is added to it.
                    Added::Nothing => Some([_mm512_set1_ps(-0.0); 2]),
                    Added::Output => Some(load(to)),
                    Added::Values(values) => Some(load(&values[at..at + 32])),
                };
                let residual = sum.residual.map(|values| load(&values[at..at + 32]));
                let rounded = || {
                    let mut halves = $round(low, high)?;
                    if let Some(earlier) = earlier {
                        let [low, high] = widened(halves);
                        let low = _mm512_add_ps(earlier[0], _mm512_mul_ps(alpha, low));
                        let high = _mm512_add_ps(earlier[1], _mm512_mul_ps(alpha, high));
                        halves = $round(low, high)?;
                    }
                    if let Some(residual) = residual {
                        let [low, high] = widened(halves);
                        let low = _mm512_add_ps(residual[0], low);
                        halves = $round(low, _mm512_add_ps(residual[1], high))?;
                    }
                    Some(halves)
                };
                match rounded() {
                    // SAFETY: 32 elements.
                    Some(halves) => unsafe {
                        _mm512_storeu_si512(to.as_mut_ptr().cast(), halves);
                    },
                    None => $else(from, sum.part(at, 32), to),
                }
            }
            whole
        }
    };
}

storing! {
    /// Stores whole vectors of 32; returns the number of elements done.
    by_integers, "avx512f,avx512bw", round_by_integers, |_, _, _| unreachable!("all are rounded")
}
storing! {
    /// As [`by_integers`], by the instruction that rounds.
    by_instruction, "avx512f,avx512bw,avx512dq,avx512bf16", round_by_instruction,
    |from: &[f32], sum: Sum<'_, bf16>, to: &mut [bf16]| {
        by_integers(from, sum, to);
    }
}
