//! A few rows of a matrix -> a panel whose step `k` holds their `k`-th elements side by side.
//!
//! Rows of bf16 are widened on the way.
#![allow(unsafe_code)] // Vector intrinsics and raw panels.

use std::ops::Range;

use half::bf16;

use crate::element::{Element, Real, convert_real};

/// The bits of the second element of a pair of bf16, which are those of an f32 where they lie.
#[cfg(target_arch = "x86_64")]
const SECOND: i32 = 0xFFFF_0000_u32.cast_signed();

/// The transposing copy, an element at a time.
///
/// # Safety
/// `from` holds `lanes` rows up to `depth.end`; `out` holds their steps.
pub(super) unsafe fn portable<E: Element, S: Real>(
    (from, from_stride): (*const E, usize),
    lanes: usize,
    depth: Range<usize>,
    (out, out_stride): (*mut S, usize),
) {
    for k in depth {
        for lane in 0..lanes {
            // SAFETY: in bounds by the caller's promise.
            unsafe {
                let x = *from.add(lane * from_stride + k);
                *out.add(k * out_stride + lane) = convert_real(x.load());
            }
        }
    }
}

/// A transposing copy of sixteen rows at a time, 64 shuffles for 16 columns of `$count` elements:
/// `$load(from, mask)` are the elements of `mask` from `from` on, `$widen` makes `$count` vectors
/// of f32 of a column.
#[cfg(target_arch = "x86_64")]
macro_rules! avx512 {
    ($name:ident, $element:ty, $count:literal, |$from:ident, $mask:ident| $load:expr,
     |$column:ident| $widen:expr) => {
        /// Sixteen rows at a time.
        ///
        /// # Safety
        /// As `Packed::transpose`, with at most 16 lanes, on a CPU with AVX-512 F, BW and VL.
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        pub(super) unsafe fn $name(
            (from, from_stride): (*const $element, usize),
            lanes: usize,
            depth: usize,
            (out, out_stride): (*mut f32, usize),
        ) {
            use std::arch::x86_64::*;
            let turned = |k: usize, $mask: u32| {
                let mut rows = [_mm512_setzero_ps(); 16];
                for (lane, row) in rows.iter_mut().enumerate() {
                    // After the last lane, the last row again: what it becomes is never read.
                    let $from = from.wrapping_add(lane.min(lanes - 1) * from_stride + k);
                    // SAFETY: elements of a row; masked-off ones are not touched.
                    *row = unsafe { $load };
                    // The same line of the rows that are packed next.
                    let next = $from.wrapping_add(lanes * from_stride);
                    _mm_prefetch::<_MM_HINT_T0>(next.cast());
                }
                turn(&rows)
            };
            let store = |step: usize, vector: __m512| {
                // SAFETY: a step of the panel, or the 16 elements after its last.
                unsafe { _mm512_storeu_ps(out.add(step * out_stride), vector) };
            };
            let width = 16 * $count;
            let whole = depth / width * width;
            for k in (0..whole).step_by(width) {
                for (c, $column) in turned(k, u32::MAX).into_iter().enumerate() {
                    for (step, vector) in (k + c * $count..).zip($widen) {
                        store(step, vector);
                    }
                }
            }
            if whole < depth {
                let mask = u32::MAX >> (32 - (depth - whole));
                for (c, $column) in turned(whole, mask).into_iter().enumerate() {
                    for (step, vector) in (whole + c * $count..depth).zip($widen) {
                        store(step, vector);
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
avx512!(
    avx512_f32,
    f32,
    1,
    |from, mask| _mm512_maskz_loadu_ps(mask as __mmask16, from),
    |column| [column]
);
#[cfg(target_arch = "x86_64")]
avx512!(
    avx512_bf16,
    bf16,
    2,
    |from, mask| _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, from.cast())),
    |pairs| {
        let pairs = _mm512_castps_si512(pairs);
        let first = _mm512_slli_epi32::<16>(pairs);
        let second = _mm512_and_si512(pairs, _mm512_set1_epi32(SECOND));
        [_mm512_castsi512_ps(first), _mm512_castsi512_ps(second)]
    }
);

/// Column `c` of the result holds element `c` of each of 16 rows.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn turn(rows: &[std::arch::x86_64::__m512; 16]) -> [std::arch::x86_64::__m512; 16] {
    use std::arch::x86_64::*;
    // Quads: `quads[g][c]` holds columns c, c + 4, c + 8, c + 12 of rows 4g .. 4g + 3.
    let mut quads = [[_mm512_setzero_ps(); 4]; 4];
    for (group, quad) in quads.iter_mut().enumerate() {
        let four = &rows[4 * group..4 * group + 4];
        let low01 = _mm512_castps_pd(_mm512_unpacklo_ps(four[0], four[1]));
        let high01 = _mm512_castps_pd(_mm512_unpackhi_ps(four[0], four[1]));
        let low23 = _mm512_castps_pd(_mm512_unpacklo_ps(four[2], four[3]));
        let high23 = _mm512_castps_pd(_mm512_unpackhi_ps(four[2], four[3]));
        quad[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
        quad[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
        quad[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
        quad[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
    }
    let mut columns = [_mm512_setzero_ps(); 16];
    for c in 0..4 {
        let even01 = _mm512_shuffle_f32x4::<0x88>(quads[0][c], quads[1][c]);
        let even23 = _mm512_shuffle_f32x4::<0x88>(quads[2][c], quads[3][c]);
        let odd01 = _mm512_shuffle_f32x4::<0xDD>(quads[0][c], quads[1][c]);
        let odd23 = _mm512_shuffle_f32x4::<0xDD>(quads[2][c], quads[3][c]);
        columns[c] = _mm512_shuffle_f32x4::<0x88>(even01, even23);
        columns[c + 8] = _mm512_shuffle_f32x4::<0xDD>(even01, even23);
        columns[c + 4] = _mm512_shuffle_f32x4::<0x88>(odd01, odd23);
        columns[c + 12] = _mm512_shuffle_f32x4::<0xDD>(odd01, odd23);
    }
    columns
}

/// A transposing copy of eight rows at a time, 24 shuffles for 8 columns of `$count` elements:
/// `$load(from)` are these elements from `from` on, `$widen` makes `$count` vectors of f32 of a
/// column.
#[cfg(target_arch = "x86_64")]
macro_rules! avx2 {
    ($name:ident, $element:ty, $count:literal, |$from:ident| $load:expr,
     |$column:ident| $widen:expr) => {
        /// Eight rows at a time.
        ///
        /// # Safety
        /// As `Packed::transpose`, with at most 8 lanes, on a CPU with AVX2.
        #[target_feature(enable = "avx2")]
        pub(super) unsafe fn $name(
            (from, from_stride): (*const $element, usize),
            lanes: usize,
            depth: usize,
            (out, out_stride): (*mut f32, usize),
        ) {
            use std::arch::x86_64::*;
            let whole = depth / (8 * $count) * (8 * $count);
            for k in (0..whole).step_by(8 * $count) {
                let mut rows = [_mm256_setzero_ps(); 8];
                for (lane, row) in rows.iter_mut().enumerate() {
                    if lane < lanes {
                        // SAFETY: so many elements of row `lane`.
                        *row = unsafe {
                            let $from = from.add(lane * from_stride + k);
                            $load
                        };
                    }
                }
                for (c, $column) in turn_8(&rows).into_iter().enumerate() {
                    let vectors: [__m256; $count] = $widen;
                    for (step, vector) in (k + c * $count..).zip(vectors) {
                        // SAFETY: a step of the panel, or the elements after its last.
                        unsafe { _mm256_storeu_ps(out.add(step * out_stride), vector) };
                    }
                }
            }
            // SAFETY: the rest of the same rows and steps.
            unsafe { portable((from, from_stride), lanes, whole..depth, (out, out_stride)) };
        }
    };
}

#[cfg(target_arch = "x86_64")]
avx2!(avx2_f32, f32, 1, |from| _mm256_loadu_ps(from), |column| [
    column
]);
#[cfg(target_arch = "x86_64")]
avx2!(
    avx2_bf16,
    bf16,
    2,
    |from| _mm256_castsi256_ps(_mm256_loadu_si256(from.cast())),
    |pairs| {
        let pairs = _mm256_castps_si256(pairs);
        let first = _mm256_slli_epi32::<16>(pairs);
        let second = _mm256_and_si256(pairs, _mm256_set1_epi32(SECOND));
        [_mm256_castsi256_ps(first), _mm256_castsi256_ps(second)]
    }
);

/// Column `c` of the result holds element `c` of each of 8 rows.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn turn_8(rows: &[std::arch::x86_64::__m256; 8]) -> [std::arch::x86_64::__m256; 8] {
    use std::arch::x86_64::*;
    // `quads[g][c]` holds columns c and c + 4 of rows 4g .. 4g + 3.
    let mut quads = [[_mm256_setzero_ps(); 4]; 2];
    for (group, quad) in quads.iter_mut().enumerate() {
        let four = &rows[4 * group..4 * group + 4];
        let low01 = _mm256_castps_pd(_mm256_unpacklo_ps(four[0], four[1]));
        let high01 = _mm256_castps_pd(_mm256_unpackhi_ps(four[0], four[1]));
        let low23 = _mm256_castps_pd(_mm256_unpacklo_ps(four[2], four[3]));
        let high23 = _mm256_castps_pd(_mm256_unpackhi_ps(four[2], four[3]));
        quad[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23));
        quad[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23));
        quad[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23));
        quad[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23));
    }
    let mut columns = [_mm256_setzero_ps(); 8];
    for c in 0..4 {
        columns[c] = _mm256_permute2f128_ps::<0x20>(quads[0][c], quads[1][c]);
        columns[c + 4] = _mm256_permute2f128_ps::<0x31>(quads[0][c], quads[1][c]);
    }
    columns
}
