//! A part of a product of few rows with AVX-512 and AVX2: a weight stored in f32 or bf16.
//!
//! A square of the weight, one vector of each of as many rows as there are lanes, is transposed in
//! registers. Its columns are then the lanes' values at successive steps.
#![allow(unsafe_code)] // Vector intrinsics and raw rows.

use std::arch::x86_64::*;

use half::bf16;

use super::{LANES, Part};
use crate::matmul::micro::dot_pairs;
use crate::matmul::transpose::{turn, turn_8};
use crate::matmul::{Isa, Update};

/// A kernel for a number of rows: a part, the weight's first element there, elements from one row
/// of it to the next, and its rows.
type Kernel<W> = unsafe fn(Part<f32>, *const W, usize, usize);

/// Kernels with 1 to N rows.
macro_rules! table {
    ($name:ident: $($rows:literal)+) => {
        [$($name::<$rows>),+]
    };
}

pub(super) use table;

const FLOATS: [Kernel<f32>; 16] = table!(floats: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
const HALVES: [Kernel<bf16>; 16] = table!(halves: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
const PAIRS: [Kernel<bf16>; 16] = table!(pairs: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
const ROUNDED: [Kernel<f32>; 16] = table!(rounded: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
const FLOATS_8: [Kernel<f32>; 6] = table!(floats_8: 1 2 3 4 5 6);
const HALVES_8: [Kernel<bf16>; 6] = table!(halves_8: 1 2 3 4 5 6);

/// Multiplies a part by `lanes` rows of f32; false where `isa` has no kernel for it.
///
/// # Safety
/// The CPU can run `isa`; the part's rows and sums have room for it, and the weight's rows hold
/// its depth.
pub(super) unsafe fn by_f32(
    isa: Isa,
    part: Part<f32>,
    weight: (*const f32, usize),
    lanes: usize,
) -> bool {
    let table = match isa {
        Isa::Avx512 => &FLOATS[..],
        Isa::Avx512Bf16 => &ROUNDED,
        Isa::Avx2 => &FLOATS_8,
        _ => return false,
    };
    // SAFETY: the caller's promises.
    unsafe { by(table, part, weight, lanes) };
    true
}

/// As [`by_f32`], for rows of bf16.
///
/// # Safety
/// As there.
pub(super) unsafe fn by_bf16(
    isa: Isa,
    part: Part<f32>,
    weight: (*const bf16, usize),
    lanes: usize,
) -> bool {
    let table = match isa {
        Isa::Avx512 => &HALVES[..],
        Isa::Avx512Bf16 => &PAIRS,
        Isa::Avx2 => &HALVES_8,
        _ => return false,
    };
    // SAFETY: the caller's promises.
    unsafe { by(table, part, weight, lanes) };
    true
}

/// Calls kernels of `table` for as many rows at a time as it has.
///
/// # Safety
/// As [`by_f32`].
unsafe fn by<W>(
    table: &[Kernel<W>],
    part: Part<f32>,
    (weight, stride): (*const W, usize),
    lanes: usize,
) {
    let most = part.rows.div_ceil(part.rows.div_ceil(table.len()));
    for first in (0..part.rows).step_by(most) {
        let rows = first..(first + most).min(part.rows);
        // SAFETY: the caller's promises.
        unsafe { table[rows.len() - 1](part.of_rows(rows), weight, stride, lanes) };
    }
}

/// Writes or adds the sums of 16 lanes.
///
/// # Safety
/// The part's sums have room for `MR` rows of 16 lanes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn store<const MR: usize>(part: Part<f32>, sums: &[__m512; MR]) {
    for (row, &sums) in sums.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let out = part.sums.0.add(row * part.sums.1);
            let sums = match part.update {
                Update::Overwrite => sums,
                Update::Accumulate => _mm512_add_ps(_mm512_loadu_ps(out), sums),
            };
            _mm512_storeu_ps(out, sums);
        }
    }
}

/// Reads the earlier sums of `V` vectors of columns.
///
/// # Safety
/// The part's sums have `MR` rows of them.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn load_sums<const MR: usize, const V: usize>(
    part: Part<f32>,
    sums: &mut [[__m512; MR]; V],
) {
    let (start, step) = part.sums;
    for (vector, sums) in sums.iter_mut().enumerate() {
        for (row, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *sum = unsafe { _mm512_loadu_ps(start.add(row * step + vector * LANES)) };
        }
    }
}

/// `x`, or the zero of its sign where it is subnormal.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn flushed(x: __m512) -> __m512 {
    const SUBNORMAL: i32 = 0x20;
    let is_small = _mm512_fpclass_ps_mask::<SUBNORMAL>(x);
    _mm512_mask_and_ps(x, is_small, x, _mm512_set1_ps(-0.0))
}

/// Writes or adds the sums of 8 lanes.
///
/// # Safety
/// The part's sums have room for `MR` rows of 8 lanes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn store_8<const MR: usize>(part: Part<f32>, sums: &[__m256; MR]) {
    for (row, &sums) in sums.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let out = part.sums.0.add(row * part.sums.1);
            let sums = match part.update {
                Update::Overwrite => sums,
                Update::Accumulate => _mm256_add_ps(_mm256_loadu_ps(out), sums),
            };
            _mm256_storeu_ps(out, sums);
        }
    }
}

/// A kernel of `$lanes` lanes: `$load` reads up to `$width` elements of a row, `$per` of which make
/// a step, as a vector of words; `$add` multiplies columns of words.
macro_rules! kernel {
    ($name:ident, $features:literal, $element:ty, [$zero:ident $lanes:literal],
     $width:literal per $per:literal,
     $load:ident $turn:ident $add:ident $store:ident) => {
        /// # Safety
        /// The CPU has the features; the part has `MR` rows; else as [`by_f32`].
        #[target_feature(enable = $features)]
        unsafe fn $name<const MR: usize>(
            part: Part<f32>,
            weight: *const $element,
            stride: usize,
            lanes: usize,
        ) {
            let mut sums = [$zero(); MR];
            // Lanes without a row of their own read the last one.
            let starts: [usize; $lanes] = std::array::from_fn(|lane| lane.min(lanes - 1) * stride);
            let (mut x, steps) = part.left;
            for k in (0..part.depth).step_by($width) {
                let count = (part.depth - k).min($width);
                let mut rows = [$zero(); $lanes];
                for (row, start) in rows.iter_mut().zip(starts) {
                    // SAFETY: `count` elements of a row. A prefetch, here of the next columns'
                    // rows, may have any address.
                    *row = unsafe {
                        let from = weight.add(start + k);
                        _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add($lanes * stride).cast());
                        $load(from, count)
                    };
                }
                let columns = $turn(&rows);
                // SAFETY: the left operand holds the part's steps.
                unsafe {
                    x = if count == $width {
                        $add(&mut sums, (x, steps), &columns, $width / $per)
                    } else {
                        $add(&mut sums, (x, steps), &columns, count.div_ceil($per))
                    };
                }
            }
            // SAFETY: the part's sums have room.
            unsafe { $store(part, &sums) };
        }
    };
}

kernel!(floats, "avx512f,avx512bw,avx512vl", f32, [_mm512_setzero_ps 16], 16 per 1,
    row_f32 turn add_floats store);
kernel!(halves, "avx512f,avx512bw,avx512vl", bf16, [_mm512_setzero_ps 16], 32 per 1,
    row_bf16 turn add_halves store);
kernel!(pairs, "avx512f,avx512bw,avx512vl,avx512bf16", bf16, [_mm512_setzero_ps 16], 32 per 2,
    row_bf16 turn add_pairs store);
kernel!(rounded, "avx512f,avx512bw,avx512vl,avx512bf16", f32, [_mm512_setzero_ps 16], 32 per 2,
    row_rounded turn add_pairs store);
kernel!(floats_8, "avx2,fma", f32, [_mm256_setzero_ps 8], 8 per 1,
    row_f32_8 turn_8 add_floats_8 store_8);
kernel!(halves_8, "avx2,fma", bf16, [_mm256_setzero_ps 8], 16 per 1,
    row_bf16_8 turn_8 add_halves_8 store_8);

/// The first `count` of 16 elements.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    (0xFFFF_u32 >> (16 - count)) as __mmask16
}

/// Up to 16 elements of a row, the rest 0.
///
/// # Safety
/// `from` holds `count` elements, 1 to 16.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn row_f32(from: *const f32, count: usize) -> __m512 {
    // SAFETY: masked-off elements are not touched.
    unsafe { _mm512_maskz_loadu_ps(first(count), from) }
}

/// Up to 32 elements of a row, the rest 0.
///
/// # Safety
/// `from` holds `count` elements, 1 to 32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn row_bf16(from: *const bf16, count: usize) -> __m512 {
    // SAFETY: masked-off elements are not touched.
    let halves = unsafe { _mm512_maskz_loadu_epi16(u32::MAX >> (32 - count), from.cast()) };
    _mm512_castsi512_ps(halves)
}

/// Up to 32 elements of a row, rounded to bf16, the rest 0.
///
/// # Safety
/// `from` holds `count` elements, 1 to 32.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn row_rounded(from: *const f32, count: usize) -> __m512 {
    let (low, high) = (first(count.min(16)), first(count.max(16) - 16));
    // SAFETY: masked-off elements are not touched, nor are addresses after the last element used.
    let (low, high) = unsafe {
        (
            _mm512_maskz_loadu_ps(low, from),
            _mm512_maskz_loadu_ps(high, from.wrapping_add(16)),
        )
    };
    words(_mm512_cvtne2ps_pbh(high, low))
}

/// The same bits as words.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) fn words(halves: __m512bh) -> __m512 {
    // SAFETY: both are 512 bits that are all valid.
    unsafe { std::mem::transmute(halves) }
}

/// Up to 8 elements of a row, the rest 0.
///
/// # Safety
/// `from` holds `count` elements.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn row_f32_8(from: *const f32, count: usize) -> __m256 {
    let mut some = [0.0f32; 8];
    // SAFETY: the caller's promise.
    unsafe {
        if count == 8 {
            return _mm256_loadu_ps(from);
        }
        std::ptr::copy_nonoverlapping(from, some.as_mut_ptr(), count);
        _mm256_loadu_ps(some.as_ptr())
    }
}

/// Up to 16 elements of a row, the rest 0.
///
/// # Safety
/// `from` holds `count` elements.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn row_bf16_8(from: *const bf16, count: usize) -> __m256 {
    let mut some = [bf16::ZERO; 16];
    // SAFETY: the caller's promise.
    unsafe {
        if count == 16 {
            return _mm256_loadu_ps(from.cast());
        }
        std::ptr::copy_nonoverlapping(from, some.as_mut_ptr(), count);
        _mm256_loadu_ps(some.as_ptr().cast())
    }
}

/// Adds the products of `count` steps, which lie in columns of words: for each row of the left
/// operand, whose steps are `stride` numbers apart. Returns where the next step is.
macro_rules! add {
    ($name:ident, $features:literal, $vector:ty, |$words:ident| [$($value:expr),+],
     $multiply:ident $splat:ident) => {
        /// # Safety
        /// The CPU has the features; the left operand holds the steps.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn $name<const MR: usize>(
            sums: &mut [$vector; MR],
            (mut x, stride): (*const f32, usize),
            columns: &[$vector],
            count: usize,
        ) -> *const f32 {
            let mut left = count;
            for &$words in columns {
                $(
                    if left > 0 {
                        let value = $value;
                        for (row, sum) in sums.iter_mut().enumerate() {
                            // SAFETY: a step of a row.
                            let x = unsafe { $splat(*x.add(row)) };
                            *sum = $multiply(x, value, *sum);
                        }
                        x = x.wrapping_add(stride);
                        left -= 1;
                    }
                )+
            }
            x
        }
    };
}

add!(add_floats, "avx512f", __m512, |words| [words], _mm512_fmadd_ps _mm512_set1_ps);
add!(add_halves, "avx512f", __m512, |words| [
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_castps_si512(words))),
    _mm512_castsi512_ps(_mm512_and_si512(
        _mm512_castps_si512(words),
        _mm512_set1_epi32(UPPER)
    ))
], _mm512_fmadd_ps _mm512_set1_ps);
add!(add_pairs, "avx512f,avx512bf16", __m512, |words| [words], dot_pairs _mm512_set1_ps);
add!(add_floats_8, "avx2,fma", __m256, |words| [words], _mm256_fmadd_ps _mm256_set1_ps);
add!(add_halves_8, "avx2,fma", __m256, |words| [
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_castps_si256(words))),
    _mm256_castsi256_ps(_mm256_and_si256(
        _mm256_castps_si256(words),
        _mm256_set1_epi32(UPPER)
    ))
], _mm256_fmadd_ps _mm256_set1_ps);

/// The upper half of a word, where a bf16 is the f32 of the same value.
const UPPER: i32 = 0xFFFF_0000_u32 as i32;
