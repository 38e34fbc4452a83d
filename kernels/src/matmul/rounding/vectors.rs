//! Blocks of sums -> bf16, 32 elements at a time.
#![allow(unsafe_code)] // Vector intrinsics.

use std::arch::x86_64::*;

use half::bf16;

use super::Addend;
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

/// Where values begin that are added, if there are any.
fn start(values: Option<&[bf16]>) -> *const bf16 {
    values.map_or(std::ptr::null(), <[bf16]>::as_ptr)
}

/// Storing of blocks with one way to round.
macro_rules! storing {
    ($(#[$doc:meta])* $name:ident, $features:literal, $round:ident, $else:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As [`super::store_block`]. The second sums are added to the output.
        #[target_feature(enable = $features)]
        pub unsafe fn $name(
            first: &Addend<'_, bf16>,
            second: Option<&Addend<'_, bf16>>,
            out: Tile<bf16>,
            (rows, cols): (usize, usize),
        ) -> usize {
            /// The rounded numbers; with `alpha`, rounded `added + alpha` times these; the rounded
            /// sum of that and the residual, if there is one.
            #[inline]
            #[target_feature(enable = $features)]
            fn sum(
                [low, high]: [__m512; 2],
                alpha: Option<__m512>,
                [added, residual]: [Option<[__m512; 2]>; 2],
            ) -> Option<__m512i> {
                let mut halves = $round(low, high)?;
                if let Some(alpha) = alpha {
                    // Minus zero changes no number that is added to it.
                    let added = added.unwrap_or([_mm512_set1_ps(-0.0); 2]);
                    let [low, high] = widened(halves).map(|x| _mm512_mul_ps(alpha, x));
                    halves = $round(_mm512_add_ps(added[0], low), _mm512_add_ps(added[1], high))?;
                }
                if let Some(residual) = residual {
                    let [low, high] = widened(halves);
                    let low = _mm512_add_ps(residual[0], low);
                    halves = $round(low, _mm512_add_ps(residual[1], high))?;
                }
                Some(halves)
            }
            // `SUM`: the rounded product is scaled, or added to the values `ADDED`. `TWO`: so is a
            // second one.
            #[target_feature(enable = $features)]
            unsafe fn store<const SUM: bool, const ADDED: bool, const TWO: bool>(
                (first, second): (&Addend<'_, bf16>, &Addend<'_, bf16>),
                (out, rows, whole): (Tile<bf16>, usize, usize),
            ) {
                let alphas = [first, second].map(|of| _mm512_set1_ps(of.sum.alpha as f32));
                let residuals = [first, second].map(|of| start(of.sum.residual));
                let earlier = match first.sum.added {
                    Added::Values(values) => values.as_ptr(),
                    Added::Output | Added::Nothing => out.start.cast_const(),
                };
                for row in 0..rows {
                    for at in (0..whole).step_by(32) {
                        let place = row * out.stride + at;
                        // SAFETY: elements of the block.
                        let to = unsafe { out.start.add(place) };
                        let load = |values: *const bf16| {
                            // SAFETY: 32 elements of values that belong to the block.
                            widened(unsafe { _mm512_loadu_si512(values.add(place).cast()) })
                        };
                        // SAFETY: 32 numbers of the block.
                        let sums = |of: &Addend<'_, bf16>| unsafe {
                            let from = of.sums.from(row, at).start;
                            [_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(16))]
                        };
                        let residuals = residuals.map(|of| (!of.is_null()).then(|| load(of)));
                        let rounded = || {
                            let added = [ADDED.then(|| load(earlier)), residuals[0]];
                            let halves = sum(sums(first), SUM.then_some(alphas[0]), added)?;
                            if !TWO {
                                return Some(halves);
                            }
                            let added = [Some(widened(halves)), residuals[1]];
                            sum(sums(second), Some(alphas[1]), added)
                        };
                        match rounded() {
                            // SAFETY: 32 elements.
                            Some(halves) => unsafe { _mm512_storeu_si512(to.cast(), halves) },
                            // SAFETY: as above.
                            None => unsafe {
                                let second = TWO.then(|| second.from((row, at), place, 32));
                                let first = first.from((row, at), place, 32);
                                $else(&first, second.as_ref(), out.from(row, at));
                            },
                        }
                    }
                }
            }
            let whole = cols / 32 * 32;
            let is_added = !matches!(first.sum.added, Added::Nothing);
            let is_sum = is_added || first.sum.alpha != 1.0;
            let store = match (is_sum, is_added, second.is_some()) {
                (false, _, false) => store::<false, false, false>,
                (false, _, true) => store::<false, false, true>,
                (true, false, false) => store::<true, false, false>,
                (true, false, true) => store::<true, false, true>,
                (true, true, false) => store::<true, true, false>,
                (true, true, true) => store::<true, true, true>,
            };
            // SAFETY: the caller's promises.
            unsafe { store((first, second.unwrap_or(first)), (out, rows, whole)) };
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
unsafe fn all_are_rounded(_: &Addend<'_, bf16>, _: Option<&Addend<'_, bf16>>, _: Tile<bf16>) {
    unreachable!("all are rounded");
}

/// What [`round_by_instruction`] leaves undone, in one row.
///
/// # Safety
/// As [`by_integers`] for 32 elements.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn of_subnormals(
    first: &Addend<'_, bf16>,
    second: Option<&Addend<'_, bf16>>,
    out: Tile<bf16>,
) {
    // SAFETY: the caller's promises.
    unsafe { by_integers(first, second, out, (1, 32)) };
}
