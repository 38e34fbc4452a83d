//! Blocks of sums -> bf16, 32 elements at a time.
#![allow(unsafe_code)] // Vector intrinsics.

use std::arch::x86_64::*;

use half::bf16;

use super::Sum;
use crate::added::Added;
use crate::matmul::tile::Tile;

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

/// What a rounded product is added to.
#[derive(Clone, Copy)]
struct Earlier {
    /// The product alone is stored, as it is rounded.
    is_nothing: bool,
    /// Elements with the output's stride; null stands for -0, which changes no number.
    values: *const bf16,
}

impl Earlier {
    fn of(sum: &Sum<'_, bf16>, out: Tile<bf16>) -> Self {
        Earlier {
            is_nothing: matches!(sum.added, Added::Nothing) && sum.alpha == 1.0,
            values: match sum.added {
                Added::Nothing => std::ptr::null(),
                Added::Output => out.start,
                Added::Values(values) => values.as_ptr(),
            },
        }
    }
}

/// Asks for the line after 32 elements of what is added: where blocks of columns follow each other,
/// it is the next one's.
#[inline]
fn prefetch_next(values: *const bf16) {
    // SAFETY: a hint, which any address may be given to.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(values.wrapping_add(32).cast()) };
}

/// Storing of blocks with one way to round.
macro_rules! storing {
    ($(#[$doc:meta])* $name:ident, $features:literal, $round:ident, $else:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As [`super::store_block`].
        #[target_feature(enable = $features)]
        pub unsafe fn $name(
            sums: Tile<f32>,
            out: Tile<bf16>,
            block: (usize, usize),
            sum: Sum<'_, bf16>,
        ) -> usize {
            #[target_feature(enable = $features)]
            unsafe fn store<const SUM: bool, const ADDED: bool, const RESIDUAL: bool>(
                sums: Tile<f32>,
                out: Tile<bf16>,
                (rows, whole): (usize, usize),
                sum: &Sum<'_, bf16>,
            ) {
                let added = Earlier::of(sum, out).values;
                let residual = sum.residual.unwrap_or_default().as_ptr();
                let alpha = _mm512_set1_ps(sum.alpha as f32);
                for row in 0..rows {
                    for at in (0..whole).step_by(32) {
                        let first = row * out.stride + at;
                        // SAFETY: elements of the block, and values that belong to it.
                        let (from, to, load) = unsafe {
                            (
                                sums.start.add(row * sums.stride + at),
                                out.start.add(first),
                                |from: *const bf16| widened(_mm512_loadu_si512(from.add(first).cast())),
                            )
                        };
                        // SAFETY: 32 numbers.
                        let [low, high] = unsafe {
                            [_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(16))]
                        };
                        let rounded = || {
                            let mut halves = $round(low, high)?;
                            if SUM {
                                let mut earlier = [_mm512_set1_ps(-0.0); 2];
                                if ADDED {
                                    prefetch_next(added.wrapping_add(first));
                                    earlier = load(added);
                                }
                                let [low, high] = widened(halves);
                                let low = _mm512_add_ps(earlier[0], _mm512_mul_ps(alpha, low));
                                let high = _mm512_add_ps(earlier[1], _mm512_mul_ps(alpha, high));
                                halves = $round(low, high)?;
                            }
                            if RESIDUAL {
                                prefetch_next(residual.wrapping_add(first));
                                let ([low, high], residual) = (widened(halves), load(residual));
                                let low = _mm512_add_ps(residual[0], low);
                                halves = $round(low, _mm512_add_ps(residual[1], high))?;
                            }
                            Some(halves)
                        };
                        match rounded() {
                            // SAFETY: 32 elements.
                            Some(halves) => unsafe { _mm512_storeu_si512(to.cast(), halves) },
                            // SAFETY: as above.
                            None => unsafe { $else(sums.from(row, at), out.from(row, at), sum.part(first, 32)) },
                        }
                    }
                }
            }
            let (rows, cols) = block;
            let whole = cols / 32 * 32;
            let earlier = Earlier::of(&sum, out);
            let store = match (!earlier.is_nothing, !earlier.values.is_null(), sum.residual) {
                (false, _, None) => store::<false, false, false>,
                (false, _, Some(_)) => store::<false, false, true>,
                (true, false, None) => store::<true, false, false>,
                (true, false, Some(_)) => store::<true, false, true>,
                (true, true, None) => store::<true, true, false>,
                (true, true, Some(_)) => store::<true, true, true>,
            };
            // SAFETY: the caller's promises.
            unsafe { store(sums, out, (rows, whole), &sum) };
            whole
        }
    };
}

storing! {
    /// Stores whole vectors of 32 columns; returns the number of columns done.
    by_integers, "avx512f,avx512bw", round_by_integers, all_are_rounded
}
storing! {
    /// As [`by_integers`], by the instruction that rounds.
    by_instruction, "avx512f,avx512bw,avx512dq,avx512bf16", round_by_instruction, of_subnormals
}

/// What [`round_by_integers`] leaves undone.
///
/// # Safety
/// None.
unsafe fn all_are_rounded(_: Tile<f32>, _: Tile<bf16>, _: Sum<'_, bf16>) {
    unreachable!("all are rounded");
}

/// What [`round_by_instruction`] leaves undone, in one row.
///
/// # Safety
/// As [`by_integers`] for 32 elements.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn of_subnormals(sums: Tile<f32>, out: Tile<bf16>, sum: Sum<'_, bf16>) {
    // SAFETY: the caller's promises.
    unsafe { by_integers(sums, out, (1, 32), sum) };
}
