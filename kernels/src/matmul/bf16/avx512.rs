//! Rows of bf16 or f32 -> panels of pairs, or rows of tiles, with AVX-512-BF16.
#![allow(unsafe_code)] // Vector intrinsics and raw panels.

use std::arch::x86_64::*;

use half::bf16;

use crate::matmul::transpose::turn;

/// The first `count` of 16 elements.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    (0xFFFF_u32 >> (16 - count)) as __mmask16
}

/// Up to 32 elements of a row, the rest 0.
///
/// # Safety
/// `from` holds `count` elements, 1 to 32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn row_bf16(from: *const bf16, count: usize) -> __m512 {
    let mask = u32::MAX >> (32 - count);
    // SAFETY: masked-off elements are not touched.
    _mm512_castsi512_ps(unsafe { _mm512_maskz_loadu_epi16(mask, from.cast()) })
}

/// Up to 32 elements of a row, rounded, the rest 0.
///
/// # Safety
/// `from` holds `count` elements, 1 to 32.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn row_f32(from: *const f32, count: usize) -> __m512 {
    let (low, high) = (first(count.min(16)), first(count.max(16) - 16));
    // SAFETY: masked-off elements are not touched, nor are addresses after the last element used.
    let (low, high) = unsafe {
        (
            _mm512_maskz_loadu_ps(low, from),
            _mm512_maskz_loadu_ps(high, from.wrapping_add(16)),
        )
    };
    bits(_mm512_cvtne2ps_pbh(high, low))
}

/// The same bits as f32, which vectors are shuffled as.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn bits(halves: __m512bh) -> __m512 {
    // SAFETY: both are 512 bits that are all valid.
    unsafe { std::mem::transmute(halves) }
}

/// Elements of one row in the low half, of another in the high half.
///
/// # Safety
/// Both rows hold the elements of `mask`; without a second row zeros take its place.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn two_bf16(even: *const bf16, odd: Option<*const bf16>, mask: __mmask16) -> __m512i {
    // SAFETY: masked-off elements are not touched.
    let load = |from: *const bf16| unsafe { _mm256_maskz_loadu_epi16(mask, from.cast()) };
    let odd = odd.map_or(_mm256_setzero_si256(), load);
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(load(even)), odd)
}

/// Rounded elements of one row in the low half, of another in the high half.
///
/// # Safety
/// Both rows hold the elements of `mask`; without a second row zeros take its place.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn two_f32(even: *const f32, odd: Option<*const f32>, mask: __mmask16) -> __m512i {
    // SAFETY: masked-off elements are not touched.
    let load = |from: *const f32| unsafe { _mm512_maskz_loadu_ps(mask, from) };
    let odd = odd.map_or(_mm512_setzero_ps(), load);
    _mm512_castps_si512(bits(_mm512_cvtne2ps_pbh(odd, load(even))))
}

/// Elements i and 16 + i, side by side.
#[inline]
#[target_feature(enable = "avx512f")]
fn side_by_side() -> __m512i {
    _mm512_or_si512(
        _mm512_cvtepu16_epi32(_mm256_setr_epi16(
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        )),
        _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_setr_epi16(
            16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
        ))),
    )
}

/// Rounds `count` elements of each row, of which the first is `from`, to pairs from `to` on.
///
/// # Safety
/// Rows hold whole vectors of 32 elements from `from` on, and of 16 pairs from `to` on, which is
/// not after `from`. The CPU has AVX-512-BF16.
#[target_feature(enable = "avx512f,avx512bf16")]
pub unsafe fn round_rows<const N: usize>(
    rows: &mut [[f32; N]],
    (from, to): (usize, usize),
    count: usize,
) {
    for row in rows {
        let row = row.as_mut_ptr();
        let (mut from, mut to) = (from, to);
        let whole = from + count / 32 * 32;
        while from < whole {
            // SAFETY: elements of the row; what is overwritten was read before.
            unsafe {
                let low = _mm512_loadu_ps(row.add(from));
                let high = _mm512_loadu_ps(row.add(from + 16));
                _mm512_storeu_ps(row.add(to), bits(_mm512_cvtne2ps_pbh(high, low)));
            }
            (from, to) = (from + 32, to + 16);
        }
        if !count.is_multiple_of(32) {
            // SAFETY: as above; masked-off elements count as 0.
            unsafe { _mm512_storeu_ps(row.add(to), row_f32(row.add(from), count % 32)) };
        }
    }
}

/// The ways of packing, for one dtype.
macro_rules! packing {
    ($element:ty: $transpose:ident $copy:ident by $row:ident,
     $interleave:ident $turn:ident by $two:ident) => {
        /// Sixteen rows at a time, 32 elements of each.
        ///
        /// # Safety
        /// As `transpose` of `pack.rs`, on a CPU with AVX-512-BF16.
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
        pub unsafe fn $transpose(
            (from, from_stride): (*const $element, usize),
            lanes: usize,
            depth: usize,
            (out, out_stride): (*mut u32, usize),
        ) {
            for k in (0..depth).step_by(32) {
                let count = (depth - k).min(32);
                let mut rows = [_mm512_setzero_ps(); 16];
                for (lane, row) in rows.iter_mut().enumerate() {
                    if lane < lanes {
                        // SAFETY: `count` elements of row `lane`.
                        *row = unsafe { $row(from.add(lane * from_stride + k), count) };
                    }
                }
                let pairs = count.div_ceil(2);
                for (step, column) in turn(&rows).iter().enumerate() {
                    if step < pairs {
                        // SAFETY: a pair of the panel, or the 16 elements after its last.
                        unsafe {
                            let to = out.add((k / 2 + step) * out_stride);
                            _mm512_storeu_ps(to.cast(), *column);
                        }
                    }
                }
            }
        }

        /// Two rows at a time, 16 elements of each.
        ///
        /// # Safety
        /// As `interleave` of `pack.rs`, with `from` the panel's first lane, on a CPU with
        /// AVX-512-BF16.
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
        pub unsafe fn $interleave(
            (from, from_stride): (*const $element, usize),
            lanes: usize,
            depth: usize,
            (out, out_stride): (*mut u32, usize),
            room: usize,
        ) {
            let order = side_by_side();
            for k in (0..depth).step_by(2) {
                for lane in (0..lanes).step_by(16) {
                    let mask = first((lanes - lane).min(16));
                    // SAFETY: elements of the panel's lanes in rows `k` and, if there, `k + 1`.
                    // Whole vectors are written where they stay in the panel: its later pairs are
                    // packed later.
                    unsafe {
                        let even = from.add(k * from_stride + lane);
                        let odd = (k + 1 < depth).then(|| even.add(from_stride));
                        let pairs = _mm512_permutexvar_epi16(order, $two(even, odd, mask));
                        let at = k / 2 * out_stride + lane;
                        if at + 16 <= room {
                            _mm512_storeu_si512(out.add(at).cast(), pairs);
                        } else {
                            _mm512_mask_storeu_epi32(out.add(at).cast(), mask, pairs);
                        }
                    }
                }
            }
        }

        /// Rows of tiles, 32 elements at a time.
        ///
        /// # Safety
        /// As `copy` of `tiles/left.rs`, on a CPU with AVX-512-BF16.
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
        pub unsafe fn $copy(
            (from, from_stride): (*const $element, usize),
            lanes: usize,
            depth: usize,
            (out, out_stride): (*mut u32, usize),
        ) {
            for lane in 0..lanes {
                for k in (0..depth).step_by(32) {
                    let count = (depth - k).min(32);
                    // SAFETY: `count` elements of row `lane`; its row of a tile.
                    unsafe {
                        let row = $row(from.add(lane * from_stride + k), count);
                        _mm512_storeu_ps(out.add(k / 32 * out_stride + lane * 16).cast(), row);
                    }
                }
            }
        }

        /// Columns -> rows of tiles, 32 rows at a time.
        ///
        /// # Safety
        /// As `turn` of `tiles/left.rs`, with `from` the first column, on a CPU with AVX-512-BF16.
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
        pub unsafe fn $turn(
            (from, from_stride): (*const $element, usize),
            lanes: usize,
            depth: usize,
            (out, out_stride): (*mut u32, usize),
        ) {
            let (order, mask) = (side_by_side(), first(lanes));
            for k in (0..depth).step_by(32) {
                let mut pairs = [_mm512_setzero_ps(); 16];
                for (k, pairs) in (k..depth).step_by(2).zip(&mut pairs) {
                    // SAFETY: elements of the columns in rows `k` and, if there, `k + 1`.
                    let two = unsafe {
                        let even = from.add(k * from_stride);
                        let odd = (k + 1 < depth).then(|| even.add(from_stride));
                        $two(even, odd, mask)
                    };
                    *pairs = _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, two));
                }
                for (lane, row) in turn(&pairs).iter().enumerate().take(lanes) {
                    // SAFETY: a row of a tile.
                    unsafe {
                        _mm512_storeu_ps(out.add(k / 32 * out_stride + lane * 16).cast(), *row);
                    }
                }
            }
        }
    };
}

packing!(bf16: transpose_bf16 copy_bf16 by row_bf16, interleave_bf16 turn_bf16 by two_bf16);
packing!(f32: transpose_f32 copy_f32 by row_f32, interleave_f32 turn_f32 by two_f32);
