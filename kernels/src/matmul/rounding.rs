//! A row of sums -> the output's dtype, and what is added there.
#![allow(unsafe_code)] // Vector intrinsics.

use half::bf16;

use super::source::{same, same_mut};
use crate::added::Added;
use crate::element::{Element, Real};

/// `added + alpha p`, where `p` is a product that was rounded to the output's dtype before. The sum
/// is in the dtype of arithmetic and is rounded in turn.
#[derive(Clone, Copy, Debug)]
pub struct Sum<'a, E> {
    /// Factor of the product.
    pub alpha: f64,
    /// What it is added to.
    pub added: Added<'a, E>,
    /// What the sum, rounded, is added to in turn, with the output's stride.
    pub residual: Option<&'a [E]>,
}

impl<E: Copy> Sum<'_, E> {
    /// The product itself.
    pub const PRODUCT: Self = Sum {
        alpha: 1.0,
        added: Added::Nothing,
        residual: None,
    };

    /// Whether what is added belongs to an output of `len` elements.
    pub(super) fn fits(&self, len: usize) -> bool {
        let residual = self.residual.is_none_or(|values| values.len() == len);
        residual && self.added.fits(len)
    }

    /// The same for `len` elements of the output from `first` on.
    #[inline(always)]
    pub(super) fn part(&self, first: usize, len: usize) -> Self {
        Sum {
            added: self.added.part(first, len),
            residual: self.residual.map(|values| &values[first..first + len]),
            ..*self
        }
    }
}

/// Writes `sums`, to which `bias` is added first, in the output's dtype, as `sum` says.
///
/// To be called within `vectorized`, whose vectors it is compiled for.
#[inline(always)]
pub(super) fn store_row<E: Element>(
    sums: &mut [E::Acc],
    bias: Option<&[E::Acc]>,
    sum: Sum<'_, E>,
    out: &mut [E],
) {
    if let Some(bias) = bias {
        for (sum, &bias) in sums.iter_mut().zip(bias) {
            *sum += bias;
        }
    }
    store_sum(sums, sum, out);
    if let Some(residual) = sum.residual {
        for (out, residual) in out.iter_mut().zip(residual) {
            *out = E::store(residual.load() + out.load());
        }
    }
}

/// [`store_row`] without bias and residual.
#[inline(always)]
fn store_sum<E: Element>(sums: &[E::Acc], sum: Sum<'_, E>, out: &mut [E]) {
    let done = store_bf16(sums, sum, out);
    let (sums, out) = (&sums[done..], &mut out[done..]);
    let alpha = E::Acc::from_f64(sum.alpha);
    match sum.added {
        Added::Nothing if sum.alpha == 1.0 => {
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = E::store(sum);
            }
        }
        Added::Nothing => {
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = E::store(alpha * E::store(sum).load());
            }
        }
        Added::Output => {
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = E::store(out.load() + alpha * E::store(sum).load());
            }
        }
        Added::Values(added) => {
            for ((out, &sum), added) in out.iter_mut().zip(sums).zip(&added[done..]) {
                *out = E::store(added.load() + alpha * E::store(sum).load());
            }
        }
    }
}

/// Stores bf16 with AVX-512; returns the number of elements done, which is 0 for other dtypes.
///
/// Compilers narrow vectors by stores of their truncated elements, which are slow on some
/// processors. Here the upper halves of two vectors are gathered into one.
#[inline(always)]
fn store_bf16<E: Element>(sums: &[E::Acc], sum: Sum<'_, E>, out: &mut [E]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if let (Some(sums), Some(out)) = (same::<E::Acc, f32>(sums), same_mut::<E, bf16>(out))
        && crate::simd::has_avx512()
    {
        let added = match sum.added {
            Added::Nothing => Added::Nothing,
            Added::Output => Added::Output,
            Added::Values(values) => Added::Values(same::<E, bf16>(values).unwrap_or_default()),
        };
        // SAFETY: the features were detected.
        return unsafe { avx512(sums, sum.alpha as f32, added, out) };
    }
    let _ = (sums, sum, out);
    0
}

/// Stores whole vectors of 32; returns the number of elements done.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn avx512(sums: &[f32], alpha: f32, added: Added<'_, bf16>, out: &mut [bf16]) -> usize {
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
    let rounded = |x: __m512| {
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
        let bits = _mm512_castps_si512(x);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
        // Numbers are rounded up from a half; a NaN becomes quiet.
        let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x40_0000));
        _mm512_mask_mov_epi32(_mm512_add_epi32(bits, half), nan, quiet)
    };
    let load = |from: &[f32]| {
        debug_assert_eq!(from.len(), 16);
        // SAFETY: sixteen numbers.
        rounded(unsafe { _mm512_loadu_ps(from.as_ptr()) })
    };
    let upper_halves = |low: __m512i, high: __m512i| _mm512_permutex2var_epi16(low, upper, high);
    // `earlier + alpha p`, of numbers whose upper halves are `p`.
    let sum = |p: __m512i, earlier: __m256i| {
        let p = _mm512_and_si512(p, _mm512_set1_epi32(!0xFFFF));
        let p = _mm512_mul_ps(_mm512_set1_ps(alpha), _mm512_castsi512_ps(p));
        let earlier = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(earlier));
        rounded(_mm512_add_ps(_mm512_castsi512_ps(earlier), p))
    };
    let whole = sums.len().min(out.len()) / 32 * 32;
    let chunks = sums[..whole].chunks_exact(32).zip(out.chunks_exact_mut(32));
    for (at, (from, to)) in chunks.enumerate() {
        let (mut low, mut high) = (load(&from[..16]), load(&from[16..]));
        let earlier = match added {
            Added::Nothing if alpha == 1.0 => None,
            // Minus zero changes no number that is added to it.
            Added::Nothing => Some(&[half::bf16::NEG_ZERO; 32][..]),
            Added::Output => Some(&*to),
            Added::Values(values) => Some(&values[32 * at..32 * at + 32]),
        };
        if let Some(earlier) = earlier {
            // SAFETY: 32 elements.
            let [a, b] = unsafe {
                let start: *const __m256i = earlier.as_ptr().cast();
                [_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1))]
            };
            (low, high) = (sum(low, a), sum(high, b));
        }
        // SAFETY: 32 elements.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), upper_halves(low, high)) };
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers with NaNs, infinities, halves and large ones among them.
    fn sample(len: usize, seed: u32) -> Vec<f32> {
        let bits = |i: u32| match i % 7 {
            0 => 0x7F80_0001 | i << 31,
            1 => 0x3F80_8000 + (i << 16),
            2 => 0x7F7F_FFFF,
            _ => i.wrapping_mul(2_654_435_761).rotate_left(seed),
        };
        (0..len as u32).map(|i| f32::from_bits(bits(i))).collect()
    }

    fn bits(values: &[bf16]) -> Vec<u16> {
        // A NaN may be any.
        let one = |x: &bf16| if x.is_nan() { 0x7FC0 } else { x.to_bits() };
        values.iter().map(one).collect()
    }

    #[test]
    fn rows_of_bf16_are_rounded_as_single_elements() {
        for len in [0, 1, 31, 32, 33, 77, 4096] {
            let mut sums = sample(len, 0);
            let expected: Vec<u16> = sums.iter().map(|&x| bf16::store(x).to_bits()).collect();
            let mut out = vec![bf16::ZERO; len];
            store_row(&mut sums, None, Sum::PRODUCT, &mut out);
            let found: Vec<u16> = out.iter().map(|x| x.to_bits()).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn rows_are_added_as_single_elements() {
        for len in [0, 1, 31, 32, 33, 77, 4096] {
            for alpha in [1.0f32, -0.3, 4.0] {
                let earlier = sample(len, 5).into_iter();
                let earlier: Vec<bf16> = earlier.map(bf16::store).collect();
                let product = sample(len, 9).into_iter();
                let product: Vec<f32> = product.map(|x| bf16::store(x).load()).collect();
                let store = |added: Added<'_, bf16>, mut out: Vec<bf16>| {
                    let alpha = f64::from(alpha);
                    store_row(
                        &mut sample(len, 9),
                        None,
                        Sum {
                            alpha,
                            added,
                            ..Sum::PRODUCT
                        },
                        &mut out,
                    );
                    bits(&out)
                };
                let scaled = product.iter().map(|p| bf16::store(alpha * p));
                let scaled: Vec<bf16> = scaled.collect();
                let sums = earlier.iter().zip(&product);
                let sums = sums.map(|(earlier, p)| bf16::store(earlier.load() + alpha * p));
                let sums: Vec<bf16> = sums.collect();
                let zeros = || vec![bf16::ZERO; len];
                assert_eq!(store(Added::Nothing, zeros()), bits(&scaled));
                assert_eq!(store(Added::Values(&earlier), zeros()), bits(&sums));
                assert_eq!(store(Added::Output, earlier.clone()), bits(&sums));
            }
        }
    }
}
