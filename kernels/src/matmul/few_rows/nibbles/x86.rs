//! The kernels for codes, with AVX-512 and AVX2.

use std::arch::x86_64::*;

use crate::matmul::Isa;
use crate::matmul::few_rows::vectors::{store, store_8, table, words};
use crate::matmul::few_rows::{Part, WIDE};
use crate::matmul::micro::dot_pairs;
use crate::matmul::transpose::{turn, turn_8};

/// Codes of a word.
const WORD: usize = 8;

/// Some elements of at most a vector of a weight's rows.
#[derive(Clone, Copy)]
pub struct Weight<'a> {
    /// The first row's first code, in the first bits of a byte.
    pub bytes: *const u8,
    /// Bytes from one row to the next.
    pub stride: usize,
    pub lanes: usize,
    pub low_first: bool,
    pub table: &'a [f32; 16],
    /// Those of the first block's rows; [`WIDE`] further those of the next one's.
    pub scales: *const f32,
    /// Elements of a block, a multiple of [`WORD`].
    pub block: usize,
    /// Elements of the first block, a multiple of [`WORD`], too.
    pub left_in_block: usize,
}

/// A kernel for a number of rows.
type Kernel = unsafe fn(Part<f32>, Weight<'_>);

const FLOATS: [Kernel; 16] = table!(floats: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
const PAIRS: [Kernel; 16] = table!(pairs: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
const FLOATS_8: [Kernel; 6] = table!(floats_8: 1 2 3 4 5 6);

/// Multiplies a part by the weight's rows.
///
/// # Safety
/// The CPU can run `isa`, which is one with vectors; the part's rows and sums have room for it; the
/// weight has its depth, a multiple of [`WORD`], and scales for it.
pub unsafe fn multiply(isa: Isa, part: Part<f32>, weight: Weight<'_>) {
    let table = match isa {
        Isa::Avx512Bf16 => &PAIRS[..],
        Isa::Avx512 => &FLOATS,
        _ => &FLOATS_8,
    };
    let most = part.rows.div_ceil(part.rows.div_ceil(table.len()));
    for first in (0..part.rows).step_by(most) {
        let rows = first..(first + most).min(part.rows);
        // SAFETY: the caller's promises.
        unsafe { table[rows.len() - 1](part.of_rows(rows), weight) };
    }
}

/// A kernel of `$lanes` lanes. Each of four times, `$step` takes the sums, the left rows' next
/// step, the vectors of the even and of the odd codes and of their scales, and the table.
macro_rules! kernel {
    ($name:ident, $features:literal, $lanes:literal, $steps:literal steps,
     $load:ident $turn:ident $ints:ident $shift:ident $scales:ident $zero:ident
     $step:ident $store:ident $tables:ident) => {
        /// # Safety
        /// The CPU has the features; the part has `MR` rows; else as [`multiply`].
        #[target_feature(enable = $features)]
        unsafe fn $name<const MR: usize>(part: Part<f32>, weight: Weight<'_>) {
            let table = $tables(weight.table);
            let mut sums = [$zero(); MR];
            // Lanes without a row of their own read the last one.
            let starts: [usize; $lanes] =
                std::array::from_fn(|lane| lane.min(weight.lanes - 1) * weight.stride);
            let (mut x, stride) = part.left;
            let (mut scales, mut left) = (weight.scales, weight.left_in_block);
            for k in (0..part.depth).step_by(WORD * $lanes) {
                let count = ((part.depth - k) / WORD).min($lanes);
                let mut rows = [$zero(); $lanes];
                for (row, start) in rows.iter_mut().zip(starts) {
                    // SAFETY: `count` words of a row. A prefetch, here of the next columns' rows,
                    // may have any address.
                    *row = unsafe {
                        let from = weight.bytes.add(start + k / 2);
                        let next = from.wrapping_add($lanes * weight.stride);
                        _mm_prefetch::<_MM_HINT_T1>(next.cast());
                        $load(from, count)
                    };
                }
                for &column in &$turn(&rows)[..count] {
                    if left == 0 {
                        left = weight.block;
                        scales = scales.wrapping_add(WIDE);
                    }
                    left -= WORD;
                    let low = $ints(column);
                    let high = $shift::<4>(low);
                    let [mut even, mut odd] = if weight.low_first {
                        [low, high]
                    } else {
                        [high, low]
                    };
                    // SAFETY: the block's scales, and steps of the left rows.
                    unsafe {
                        let scale = $scales(scales);
                        for _ in 0..WORD / 2 {
                            $step(&mut sums, (x, stride), [even, odd], scale, table);
                            x = x.add($steps * stride);
                            (even, odd) = ($shift::<8>(even), $shift::<8>(odd));
                        }
                    }
                }
            }
            // SAFETY: the part's sums have room.
            unsafe { $store(part, &sums) };
        }
    };
}

kernel!(floats, "avx512f", 16, 2 steps,
    load turn _mm512_castps_si512 _mm512_srli_epi32 _mm512_loadu_ps _mm512_setzero_ps
    add store table_of);
kernel!(pairs, "avx512f,avx512bw,avx512bf16", 16, 1 steps,
    load turn _mm512_castps_si512 _mm512_srli_epi32 _mm512_loadu_ps _mm512_setzero_ps
    add_pair store table_of);
kernel!(floats_8, "avx2,fma", 8, 2 steps,
    load_8 turn_8 _mm256_castps_si256 _mm256_srli_epi32 _mm256_loadu_ps _mm256_setzero_ps
    add_8 store_8 table_of_8);

/// Up to 16 words, the rest 0.
///
/// # Safety
/// `from` holds `count` words, 1 to 16.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load(from: *const u8, count: usize) -> __m512 {
    let mask = (0xFFFF_u32 >> (16 - count)) as __mmask16;
    // SAFETY: masked-off words are not touched.
    unsafe { _mm512_maskz_loadu_ps(mask, from.cast()) }
}

/// Up to 8 words, the rest 0.
///
/// # Safety
/// `from` holds `count` words.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_8(from: *const u8, count: usize) -> __m256 {
    let mut some = [0u8; 32];
    // SAFETY: the caller's promise.
    unsafe {
        if count == 8 {
            return _mm256_loadu_ps(from.cast());
        }
        std::ptr::copy_nonoverlapping(from, some.as_mut_ptr(), 4 * count);
        _mm256_loadu_ps(some.as_ptr().cast())
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn table_of(table: &[f32; 16]) -> __m512 {
    // SAFETY: 16 values.
    unsafe { _mm512_loadu_ps(table.as_ptr()) }
}

/// The halves of the table.
#[inline]
#[target_feature(enable = "avx2")]
fn table_of_8(table: &[f32; 16]) -> [__m256; 2] {
    // SAFETY: twice 8 values.
    unsafe {
        [
            _mm256_loadu_ps(table.as_ptr()),
            _mm256_loadu_ps(table[8..].as_ptr()),
        ]
    }
}

/// Adds the products of two elements.
///
/// # Safety
/// The CPU has the features; `x` is the first of two steps, `stride` numbers apart.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add<const MR: usize>(
    sums: &mut [__m512; MR],
    (x, stride): (*const f32, usize),
    codes: [__m512i; 2],
    scale: __m512,
    table: __m512,
) {
    for (step, codes) in codes.into_iter().enumerate() {
        // Permutations read the low four bits of a code.
        let value = _mm512_mul_ps(_mm512_permutexvar_ps(codes, table), scale);
        for (row, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a step of a row.
            let x = unsafe { _mm512_set1_ps(*x.add(step * stride + row)) };
            *sum = _mm512_fmadd_ps(x, value, *sum);
        }
    }
}

/// The halves of each word in turn: of one vector's, and of another's 256 bits further.
static IN_TURN: [u16; 32] = {
    let mut order = [0; 32];
    let mut lane = 0;
    while lane < 16 {
        order[2 * lane] = lane as u16;
        order[2 * lane + 1] = lane as u16 + 16;
        lane += 1;
    }
    order
};

/// Adds the products of a pair of elements.
///
/// # Safety
/// The CPU has the features; `x` is the step of the left rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn add_pair<const MR: usize>(
    sums: &mut [__m512; MR],
    (x, _): (*const f32, usize),
    codes: [__m512i; 2],
    scale: __m512,
    table: __m512,
) {
    let value = |codes| _mm512_mul_ps(_mm512_permutexvar_ps(codes, table), scale);
    let [even, odd] = codes.map(value);
    let halves = _mm512_castps_si512(words(_mm512_cvtne2ps_pbh(odd, even)));
    // SAFETY: 32 places.
    let order = unsafe { _mm512_loadu_si512(IN_TURN.as_ptr().cast()) };
    let pair = _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, halves));
    for (row, sum) in sums.iter_mut().enumerate() {
        // SAFETY: a step of a row.
        let x = unsafe { _mm512_set1_ps(*x.add(row)) };
        *sum = dot_pairs(x, pair, *sum);
    }
}

/// Adds the products of two elements.
///
/// # Safety
/// The CPU has the features; `x` is the first of two steps, `stride` numbers apart.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn add_8<const MR: usize>(
    sums: &mut [__m256; MR],
    (x, stride): (*const f32, usize),
    codes: [__m256i; 2],
    scale: __m256,
    [low, high]: [__m256; 2],
) {
    for (step, codes) in codes.into_iter().enumerate() {
        // Permutations read the low three bits; bit 3, moved to the sign, chooses the half.
        let half = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes));
        let low = _mm256_permutevar8x32_ps(low, codes);
        let high = _mm256_permutevar8x32_ps(high, codes);
        let value = _mm256_mul_ps(_mm256_blendv_ps(low, high, half), scale);
        for (row, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a step of a row.
            let x = unsafe { _mm256_set1_ps(*x.add(step * stride + row)) };
            *sum = _mm256_fmadd_ps(x, value, *sum);
        }
    }
}
