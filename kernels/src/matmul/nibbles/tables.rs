//! Codes of a weight's rows with AVX-512-BF16: a block's values, scaled and rounded once -> pairs.
//!
//! A block of a row has at most 16 values: its table of 16 bf16 is the codebook, scaled and
//! rounded. Two registers hold the tables of four rows. So a lookup of 32 codes gives eight values
//! of each of four rows, and those of 16 rows are then transposed as pairs.
#![allow(unsafe_code)] // Vector intrinsics and raw rows.

use std::arch::x86_64::*;
use std::ops::Range;

use espalier_interface::format::BitOrder;

use super::{Nibbles, WIDE};

/// Lanes of a vector.
const LANES: usize = 16;
/// Elements of a row that are decoded at a time.
pub const UNIT: usize = 32;
/// Bytes of a row that are loaded at a time.
pub const LINE: usize = 64;

/// Some elements of at most [`WIDE`] rows of a weight.
pub struct CodeRows<'a> {
    /// Where each lane's codes begin; lanes without a row of their own read the last one.
    pub starts: [*const u8; WIDE],
    /// The bits of a code in a byte, where it has one of its own: how many are below it.
    pub shifts: [u8; WIDE],
    /// Whether the first code of a byte is in its low bits, where it holds two.
    pub low_first: bool,
    /// The mask of a code.
    pub mask: u8,
    pub table: &'a [f32; 16],
    /// The scales and, where blocks have them, the zero points of the first block's rows;
    /// [`WIDE`] further are those of the next one's.
    pub numbers: [*const f32; 2],
    /// From one block's zero points to the next one's.
    pub zeros_step: usize,
    /// Elements of a block, a multiple of [`UNIT`].
    pub block: usize,
    /// Elements of the first block, a multiple of [`UNIT`], too.
    pub left_in_block: usize,
    /// Bytes to the codes that are used after these.
    pub ahead: usize,
}

/// Zero points of blocks that have none.
static NO_ZEROS: [f32; WIDE] = [0.0; WIDE];

impl<'a> CodeRows<'a> {
    /// The rows `rows` of a weight of `width` columns, `depth` elements of them from `k` on, for
    /// `vectors` vectors of lanes. `scales` and zero points are those of these elements' blocks, as
    /// [`Nibbles::gather`] writes them.
    ///
    /// # Panics
    /// Where there are fewer, or blocks and elements are no multiples of [`UNIT`].
    pub fn new(
        codes: &'a Nibbles<'a>,
        (rows, width): (Range<usize>, usize),
        (k, depth): (usize, usize),
        (scales, zeros): (&'a [f32], Option<&'a [f32]>),
        vectors: usize,
    ) -> Self {
        let (lanes, per_byte) = (rows.len(), codes.per_byte());
        let words = match codes.codes.order {
            BitOrder::Split { words } => words as usize,
            _ => usize::MAX,
        };
        let (word, below) = codes.codes.place((rows.start * width) as u64);
        let (mut word, mut below) = (word as usize, below as u8);
        let (mut starts, mut shifts) = ([codes.bytes.as_ptr(); WIDE], [0; WIDE]);
        for (lane, (start, shift)) in starts.iter_mut().zip(&mut shifts).enumerate() {
            let some = &codes.bytes[word + k / per_byte..][..depth / per_byte];
            (*start, *shift) = (some.as_ptr(), below);
            if lane + 1 < lanes {
                word += width / per_byte;
                if word >= words {
                    (word, below) = (word - words, below - codes.codes.bits as u8);
                }
            }
        }
        let blocks = (k + depth).div_ceil(codes.block) - k / codes.block;
        let needed = (blocks - 1) * WIDE + vectors * LANES;
        assert!(
            scales.len() >= needed && zeros.is_none_or(|zeros| zeros.len() >= needed),
            "a weight has too few scales"
        );
        assert!(
            (k | depth | codes.block).is_multiple_of(UNIT) && lanes <= vectors * LANES,
            "a packed weight has other blocks"
        );
        CodeRows {
            starts,
            shifts,
            low_first: codes.codes.order == BitOrder::LowFirst,
            mask: codes.codes.mask(),
            table: codes.table,
            numbers: [scales.as_ptr(), zeros.unwrap_or(&NO_ZEROS).as_ptr()],
            zeros_step: zeros.map_or(0, |_| WIDE),
            block: codes.block,
            left_in_block: codes.block - k % codes.block,
            ahead: vectors * LANES * width / per_byte,
        }
    }
}

/// The values of a block's codes, from the numbers of its codebook.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn scaled(numbers: __m512, scale: f32, zero: f32) -> __m512 {
    let shifted = _mm512_sub_ps(numbers, _mm512_set1_ps(zero));
    _mm512_mul_ps(shifted, _mm512_set1_ps(scale))
}

/// The tables of 16 lanes from `lane` on: `tables[i]` are those of lanes `i`, `i + 4`, `i + 8` and
/// `i + 12`.
///
/// # Safety
/// The weight has the block's scales.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub unsafe fn scale(
    weight: &CodeRows<'_>,
    block: usize,
    lane: usize,
    tables: &mut [[__m512i; 2]; 4],
) {
    let [scales, zeros] = weight.numbers;
    // SAFETY: 16 values of the table; the block's numbers.
    unsafe {
        let table = _mm512_loadu_ps(weight.table.as_ptr());
        let (scales, zeros) = (
            scales.add(block * WIDE + lane),
            zeros.add(block * weight.zeros_step + lane),
        );
        let value = |lane: usize| scaled(table, *scales.add(lane), *zeros.add(lane));
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
pub fn bits_of<const SLOTS: bool>(weight: &CodeRows<'_>, lane: usize, eight: usize) -> __m512i {
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
pub unsafe fn load(
    weight: &CodeRows<'_>,
    at: usize,
    bytes: usize,
    lane: usize,
) -> [[__m512i; 4]; 4] {
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
pub fn decode(
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
