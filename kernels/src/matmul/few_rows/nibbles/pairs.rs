//! The kernels for codes with AVX-512-BF16: a block's values, scaled and rounded once -> pairs.
//!
//! A block of a row has at most 16 values: its table of 16 bf16 is the codebook, scaled and
//! rounded. Two registers hold the tables of four rows. So a lookup of 32 codes gives eight values
//! of each of four rows, and those of 16 rows are then transposed as pairs.
#![allow(unsafe_code)] // Vector intrinsics and raw rows.

use std::arch::x86_64::*;
use std::ops::Range;

use espalier_interface::format::BitOrder;

use crate::matmul::Update;
use crate::matmul::few_rows::vectors::{flushed, load_sums, store};
use crate::matmul::few_rows::{LANES, MOST_ROWS_IN_ORDER_OF_TILES, Part, WIDE};
use crate::matmul::micro::dot_pairs;
use crate::matmul::nibbles::Nibbles;

/// Elements of a row that are decoded at a time.
pub const UNIT: usize = 32;
/// Bytes of a row that are loaded at a time.
const LINE: usize = 64;
/// Most rows of the left operand that are multiplied by two vectors of columns at a time.
pub const MOST_ROWS_OF_TWO: usize = 8;

/// Some elements of at most [`WIDE`] rows of a weight.
struct CodeRows<'a> {
    /// Where each lane's codes begin; lanes without a row of their own read the last one.
    starts: [*const u8; WIDE],
    /// The bits of a code in a byte, where it has one of its own: how many are below it.
    shifts: [u8; WIDE],
    /// Whether the first code of a byte is in its low bits, where it holds two.
    low_first: bool,
    /// The mask of a code.
    mask: u8,
    table: &'a [f32; 16],
    /// The scales and, where blocks have them, the zero points of the first block's rows;
    /// [`WIDE`] further are those of the next one's.
    numbers: [*const f32; 2],
    /// From one block's zero points to the next one's.
    zeros_step: usize,
    /// Elements of a block, a multiple of [`UNIT`].
    block: usize,
    /// Elements of the first block, a multiple of [`UNIT`], too.
    left_in_block: usize,
    /// Bytes to the codes that are used after these.
    ahead: usize,
}

/// A kernel for a number of rows of the left operand.
type Kernel = unsafe fn(Part<f32>, &CodeRows<'_>);

/// Kernels with 1 to N rows.
macro_rules! table {
    ($vectors:literal, $slots:literal, $tiled:literal: $($rows:literal)+) => {
        [$(pairs::<$rows, $vectors, $slots, $tiled>),+]
    };
}

const TWO: [[Kernel; MOST_ROWS_OF_TWO]; 2] = [
    table!(2, false, false: 1 2 3 4 5 6 7 8),
    table!(2, true, false: 1 2 3 4 5 6 7 8),
];
const ONE: [[Kernel; 8]; 2] = [
    table!(1, false, false: 9 10 11 12 13 14 15 16),
    table!(1, true, false: 9 10 11 12 13 14 15 16),
];

const TILED: [[Kernel; MOST_ROWS_IN_ORDER_OF_TILES]; 2] = [
    table!(2, false, true: 1 2 3 4),
    table!(2, true, true: 1 2 3 4),
];

/// Zero points of blocks that have none.
static NO_ZEROS: [f32; WIDE] = [0.0; WIDE];

/// Multiplies a part by the rows `rows` of the weight, from element `k` of them on; where it
/// `is_tiled`, in the order of tiles.
///
/// # Safety
/// The CPU has AVX-512 F, BW, VBMI and BF16; the part's rows and sums have room for it.
pub unsafe fn multiply(
    part: Part<f32>,
    codes: &Nibbles<'_>,
    (rows, width): (Range<usize>, usize),
    k: usize,
    (scales, is_tiled): (&[f32], bool),
) {
    let lanes = rows.len();
    let (is_split, words, per_byte) = match codes.codes.order {
        BitOrder::Split { words } => (true, words as usize, 1),
        _ => (false, usize::MAX, 2),
    };
    let (word, below) = codes.codes.place((rows.start * width) as u64);
    let (mut word, mut below) = (word as usize, below as u8);
    let (mut starts, mut shifts) = ([codes.bytes.as_ptr(); WIDE], [0; WIDE]);
    for (lane, (start, shift)) in starts.iter_mut().zip(&mut shifts).enumerate() {
        let some = &codes.bytes[word + k / per_byte..][..part.depth / per_byte];
        (*start, *shift) = (some.as_ptr(), below);
        if lane + 1 < lanes {
            word += width / per_byte;
            if word >= words {
                (word, below) = (word - words, below - codes.codes.bits as u8);
            }
        }
    }
    let first = k / codes.block;
    let blocks = (k + part.depth).div_ceil(codes.block) - first;
    let all = width / codes.block * WIDE;
    let vectors = if part.rows <= MOST_ROWS_OF_TWO { 2 } else { 1 };
    let numbers = |from: usize| {
        let some = &scales[from + first * WIDE..];
        let needed = (blocks - 1) * WIDE + vectors * LANES;
        assert!(some.len() >= needed, "a weight has too few scales");
        some.as_ptr()
    };
    let zeros = if codes.has_zeros {
        numbers(all)
    } else {
        NO_ZEROS.as_ptr()
    };
    assert!(
        (k | part.depth | codes.block).is_multiple_of(UNIT) && lanes <= vectors * LANES,
        "a packed weight has other blocks"
    );
    let weight = CodeRows {
        starts,
        shifts,
        low_first: codes.codes.order == BitOrder::LowFirst,
        mask: codes.codes.mask(),
        table: codes.table,
        numbers: [numbers(0), zeros],
        zeros_step: if codes.has_zeros { WIDE } else { 0 },
        block: codes.block,
        left_in_block: codes.block - k % codes.block,
        ahead: vectors * LANES * width / per_byte,
    };
    let kernel = match part.rows {
        rows if is_tiled => TILED[usize::from(is_split)][rows - 1],
        rows @ ..=MOST_ROWS_OF_TWO => TWO[usize::from(is_split)][rows - 1],
        rows => ONE[usize::from(is_split)][rows - MOST_ROWS_OF_TWO - 1],
    };
    // SAFETY: the caller's promises; the codes and scales were just checked.
    unsafe { kernel(part, &weight) };
}

/// `V` vectors of columns. `SLOTS`: codes have bytes of their own. `TILED`: sums are in the order
/// of tiles, of which a [`UNIT`] has the depth: even and odd elements of the left operand are two
/// chains from 0, whose sum is added.
///
/// # Safety
/// The CPU has the features; the part has `MR` rows, whose sums have room; the weight has codes
/// and scales for the part's depth.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi,avx512bf16")]
unsafe fn pairs<const MR: usize, const V: usize, const SLOTS: bool, const TILED: bool>(
    part: Part<f32>,
    weight: &CodeRows<'_>,
) {
    let mut sums = [[_mm512_setzero_ps(); MR]; V];
    let goes_on = TILED && part.update == Update::Accumulate;
    if goes_on {
        // SAFETY: the part's sums.
        unsafe { load_sums(part, &mut sums) };
    }
    let mut tables = [[[_mm512_setzero_si512(); 2]; 4]; V];
    let (mut x, stride) = part.left;
    let (mut left, mut next, mut block) = (0, weight.left_in_block, 0);
    let bits: [_; V] = std::array::from_fn(|vector| {
        [0, 1].map(|four| [0, 1, 2, 3].map(|i| bits_of::<SLOTS>(weight, vector * LANES + i, four)))
    });
    let per_line = if SLOTS { LINE } else { 2 * LINE };
    for line in (0..part.depth).step_by(per_line) {
        let elements = (part.depth - line).min(per_line);
        let (at, bytes) = (line * LINE / per_line, elements * LINE / per_line);
        // SAFETY: codes of the part's depth.
        let lines: [_; V] =
            std::array::from_fn(|vector| unsafe { load(weight, at, bytes, vector * LANES) });
        for unit in 0..elements / UNIT {
            if left == 0 {
                (left, next) = (next, weight.block);
                for (vector, tables) in tables.iter_mut().enumerate() {
                    // SAFETY: the block's scales.
                    unsafe { scale(weight, block, vector * LANES, tables) };
                }
                block += 1;
            }
            left -= UNIT;
            for (vector, sums) in sums.iter_mut().enumerate() {
                let (line, tables) = (&lines[vector], &tables[vector]);
                let mut chains = [[_mm512_setzero_ps(); 2]; MR];
                for four in 0..UNIT / 8 {
                    let bits = &bits[vector][if SLOTS { 0 } else { four % 2 }];
                    let word = (unit * UNIT / 8 + four) / if SLOTS { 1 } else { 2 };
                    // Spread out: a burst would make the loads of the next line wait.
                    let per_four = if SLOTS { 2 } else { 1 };
                    for row in 0..per_four {
                        let lane = (unit * UNIT / 8 + four) * per_four + row;
                        let from = weight.starts[vector * LANES + lane].wrapping_add(at);
                        // A prefetch may have any address.
                        _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(weight.ahead).cast());
                    }
                    let columns = decode(line, word, bits, weight.mask, tables);
                    for (step, &pair) in columns.iter().enumerate() {
                        let x = x.wrapping_add((4 * four + step) * stride);
                        // SAFETY: a step of a left row.
                        let of = |at: usize| _mm512_set1_ps(unsafe { *x.add(at) });
                        if TILED {
                            for (row, [even, odd]) in chains.iter_mut().enumerate() {
                                *even = dot_pairs(of(row), pair, *even);
                                *odd = dot_pairs(of(stride / 2 + row), pair, *odd);
                            }
                            continue;
                        }
                        for (row, sum) in sums.iter_mut().enumerate() {
                            *sum = dot_pairs(of(row), pair, *sum);
                        }
                    }
                }
                if TILED {
                    for (sum, [even, odd]) in sums.iter_mut().zip(chains) {
                        *sum = flushed(_mm512_add_ps(*sum, flushed(_mm512_add_ps(even, odd))));
                    }
                }
            }
            x = x.wrapping_add(UNIT / 2 * stride);
        }
    }
    for (vector, sums) in sums.iter().enumerate() {
        let (start, step) = part.sums;
        let sums_of = Part {
            sums: (start.wrapping_add(vector * LANES), step),
            update: if goes_on {
                Update::Overwrite
            } else {
                part.update
            },
            ..part
        };
        // SAFETY: the part's sums have room.
        unsafe { store(sums_of, sums) };
    }
}

/// The tables of 16 lanes from `lane` on: `tables[i]` are those of lanes `i`, `i + 4`, `i + 8` and
/// `i + 12`.
///
/// # Safety
/// The weight has the block's scales.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn scale(weight: &CodeRows<'_>, block: usize, lane: usize, tables: &mut [[__m512i; 2]; 4]) {
    let [scales, zeros] = weight.numbers;
    // SAFETY: 16 values of the table; the block's numbers.
    unsafe {
        let table = _mm512_loadu_ps(weight.table.as_ptr());
        let (scales, zeros) = (
            scales.add(block * WIDE + lane),
            zeros.add(block * weight.zeros_step + lane),
        );
        let value = |lane: usize| {
            let [scale, zero] = [scales, zeros].map(|from| _mm512_set1_ps(*from.add(lane)));
            _mm512_mul_ps(_mm512_sub_ps(table, zero), scale)
        };
        for (i, tables) in tables.iter_mut().enumerate() {
            for (half, table) in tables.iter_mut().enumerate() {
                let first = i + 8 * half;
                let halves = _mm512_cvtne2ps_pbh(value(first + 4), value(first));
                *table = std::mem::transmute::<__m512bh, __m512i>(halves);
            }
        }
    }
}

/// Where the first or the second eight codes of a word of 64 bits begin, in bits from its first
/// one: four in each of two words.
const fn begins(slots: bool, low_first: bool, eight: usize) -> [i64; 2] {
    let mut bits = [0; 2];
    let mut code = 0;
    while code < 8 {
        let begin = if slots {
            8 * code
        } else {
            4 * (8 * eight + if low_first { code } else { code ^ 1 })
        };
        bits[code / 4] |= (begin as i64) << (16 * (code % 4));
        code += 1;
    }
    bits
}

/// Where eight codes of the lanes `lane`, `lane + 4`, `lane + 8` and `lane + 12` begin.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn bits_of<const SLOTS: bool>(weight: &CodeRows<'_>, lane: usize, eight: usize) -> __m512i {
    let [a, b] = match (SLOTS, weight.low_first, eight) {
        (true, ..) => const { begins(true, false, 0) },
        (_, false, 0) => const { begins(false, false, 0) },
        (_, false, _) => const { begins(false, false, 1) },
        (_, true, 0) => const { begins(false, true, 0) },
        (_, true, _) => const { begins(false, true, 1) },
    };
    let bits = _mm512_set_epi64(b, a, b, a, b, a, b, a);
    if !SLOTS {
        return bits;
    }
    let shifts = [0, 4, 8, 12].map(|further| i64::from(weight.shifts[lane + further]));
    let [a, b, c, d] = shifts.map(|shift| shift * 0x0001_0001_0001_0001);
    _mm512_add_epi16(bits, _mm512_set_epi64(d, d, c, c, b, b, a, a))
}

/// The bytes of 16 rows, from `lane` on, from byte `at` on, at most [`LINE`]. Vector `[part][i]`
/// holds 16 bytes of each of the lanes `i`, `i + 4`, `i + 8` and `i + 12`.
///
/// # Safety
/// The weight's rows have them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn load(weight: &CodeRows<'_>, at: usize, bytes: usize, lane: usize) -> [[__m512i; 4]; 4] {
    let mask = u64::MAX >> (LINE - bytes);
    let mut parts = [[_mm512_setzero_si512(); 4]; 4];
    for i in [0, 1, 2, 3] {
        let rows = [0, 4, 8, 12].map(|four| {
            let from = weight.starts[lane + i + four].wrapping_add(at);
            // SAFETY: masked-off bytes are not touched.
            unsafe { _mm512_maskz_loadu_epi8(mask, from.cast()) }
        });
        let low01 = _mm512_shuffle_i32x4::<0x44>(rows[0], rows[1]);
        let low23 = _mm512_shuffle_i32x4::<0x44>(rows[2], rows[3]);
        let high01 = _mm512_shuffle_i32x4::<0xEE>(rows[0], rows[1]);
        let high23 = _mm512_shuffle_i32x4::<0xEE>(rows[2], rows[3]);
        parts[0][i] = _mm512_shuffle_i32x4::<0x88>(low01, low23);
        parts[1][i] = _mm512_shuffle_i32x4::<0xDD>(low01, low23);
        parts[2][i] = _mm512_shuffle_i32x4::<0x88>(high01, high23);
        parts[3][i] = _mm512_shuffle_i32x4::<0xDD>(high01, high23);
    }
    parts
}

/// Four pairs of 16 rows: of the codes that begin at `bits` of the 64-bit word `word` of a line.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn decode(
    line: &[[__m512i; 4]; 4],
    word: usize,
    bits: &[__m512i; 4],
    mask: u8,
    tables: &[[__m512i; 2]; 4],
) -> [__m512; 4] {
    let mask = _mm512_set1_epi16(i16::from(mask));
    // Four rows' tables follow each other in a lookup.
    let [b, c, d] = [1, 2, 3].map(|i: i64| 0x0010_0010_0010_0010 * i);
    let row_of = _mm512_set_epi64(d, d, c, c, b, b, 0, 0);
    let words = &line[word / 2];
    let mut values = [_mm512_setzero_si512(); 4];
    for (i, value) in values.iter_mut().enumerate() {
        let word = if word.is_multiple_of(2) {
            _mm512_unpacklo_epi64(words[i], words[i])
        } else {
            _mm512_unpackhi_epi64(words[i], words[i])
        };
        let codes = _mm512_multishift_epi64_epi8(bits[i], word);
        // The code's bits, and the row's above them.
        let places = _mm512_ternarylogic_epi32::<0xEA>(codes, mask, row_of);
        *value = _mm512_permutex2var_epi16(tables[i][0], places, tables[i][1]);
    }
    turn_four(&values)
}

/// Vector `c` of the result holds word `c` of each 128 bits of each of four vectors, side by side.
#[inline]
#[target_feature(enable = "avx512f")]
fn turn_four(rows: &[__m512i; 4]) -> [__m512; 4] {
    let low01 = _mm512_unpacklo_epi32(rows[0], rows[1]);
    let low23 = _mm512_unpacklo_epi32(rows[2], rows[3]);
    let high01 = _mm512_unpackhi_epi32(rows[0], rows[1]);
    let high23 = _mm512_unpackhi_epi32(rows[2], rows[3]);
    [
        _mm512_unpacklo_epi64(low01, low23),
        _mm512_unpackhi_epi64(low01, low23),
        _mm512_unpacklo_epi64(high01, high23),
        _mm512_unpackhi_epi64(high01, high23),
    ]
    .map(|words| _mm512_castsi512_ps(words))
}
