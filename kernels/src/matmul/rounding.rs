//! A row of sums -> the output's dtype.
#![allow(unsafe_code)] // Vector intrinsics.

use half::bf16;

use super::Update;
use super::source::{same, same_mut};
use crate::element::Element;

/// Writes `sums`, to which `added` is added first, in the output's dtype.
///
/// To be called within `vectorized`, whose vectors it is compiled for.
#[inline(always)]
pub(super) fn store_row<E: Element>(
    sums: &mut [E::Acc],
    added: Option<&[E::Acc]>,
    update: Update,
    out: &mut [E],
) {
    if let Some(added) = added {
        for (sum, &added) in sums.iter_mut().zip(added) {
            *sum += added;
        }
    }
    match update {
        Update::Overwrite => {
            let done = store_bf16(sums, out);
            for (out, &sum) in out[done..].iter_mut().zip(&sums[done..]) {
                *out = E::store(sum);
            }
        }
        Update::Accumulate => {
            for (out, &sum) in out.iter_mut().zip(sums.iter()) {
                *out = E::store(out.load() + sum);
            }
        }
    }
}

/// Stores bf16 with AVX-512; returns the number of elements done, which is 0 for other dtypes.
///
/// Compilers narrow vectors by stores of their truncated elements, which are slow on some
/// processors. Here the upper halves of two vectors are gathered into one.
#[inline(always)]
fn store_bf16<E: Element>(sums: &[E::Acc], out: &mut [E]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if let (Some(sums), Some(out)) = (same::<E::Acc, f32>(sums), same_mut::<E, bf16>(out))
        && crate::simd::has_avx512()
    {
        // SAFETY: the features were detected.
        return unsafe { avx512(sums, out) };
    }
    let _ = (sums, out);
    0
}

/// Stores whole vectors of 32; returns the number of elements done.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn avx512(sums: &[f32], out: &mut [bf16]) -> usize {
    use std::arch::x86_64::*;
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
    // SAFETY: 32 numbers.
    let upper = unsafe { _mm512_loadu_si512(UPPER.as_ptr().cast()) };
    let rounded = |from: &[f32]| {
        debug_assert_eq!(from.len(), 16);
        // SAFETY: sixteen numbers.
        let x = unsafe { _mm512_loadu_ps(from.as_ptr()) };
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
        let bits = _mm512_castps_si512(x);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
        // Numbers are rounded up from a half; a NaN becomes quiet.
        let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x40_0000));
        _mm512_mask_mov_epi32(_mm512_add_epi32(bits, half), nan, quiet)
    };
    let whole = sums.len().min(out.len()) / 32 * 32;
    for (from, to) in sums[..whole].chunks_exact(32).zip(out.chunks_exact_mut(32)) {
        let (low, high) = (rounded(&from[..16]), rounded(&from[16..]));
        // SAFETY: 32 elements.
        unsafe {
            let halves = _mm512_permutex2var_epi16(low, upper, high);
            _mm512_storeu_si512(to.as_mut_ptr().cast(), halves);
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_bf16_are_rounded_as_single_elements() {
        let bits = |i: u32| match i % 7 {
            0 => 0x7F80_0001 | i << 31,
            1 => 0x3F80_8000 + (i << 16),
            2 => 0x7F7F_FFFF,
            _ => i.wrapping_mul(2_654_435_761),
        };
        for len in [0, 1, 31, 32, 33, 77, 4096] {
            let mut sums: Vec<f32> = (0..len).map(|i| f32::from_bits(bits(i))).collect();
            let expected: Vec<u16> = sums.iter().map(|&x| bf16::store(x).to_bits()).collect();
            let mut out = vec![bf16::ZERO; len as usize];
            store_row(&mut sums, None, Update::Overwrite, &mut out);
            let found: Vec<u16> = out.iter().map(|x| x.to_bits()).collect();
            assert_eq!(found, expected);
        }
    }
}
