//! A weight in codes -> panels of pairs, without a panel of its values in between.
#![allow(unsafe_code)] // Vector intrinsics and raw panels.

use std::arch::x86_64::*;
use std::ops::Range;

use espalier_interface::format::BitOrder;

use crate::matmul::nibbles::tables::{CodeRows, LINE, UNIT, bits_of, decode, load, scale, scaled};
use crate::matmul::nibbles::{Nibbles, WIDE};
use crate::matmul::panel::Cut;
use crate::matmul::source::{Operand, Summed};
use crate::matmul::{Isa, Scalar};

/// Lanes of a vector of pairs.
const LANES: usize = 16;

/// Packs `lanes` x `depth` of `operand` as [`super::pack`] does, without the zeros after the depth;
/// false, with nothing written, where it is not in codes that `isa` can look up so.
///
/// # Safety
/// `out` has room for the panels. The CPU can run `isa`.
pub unsafe fn pack<S: Scalar>(
    isa: Isa,
    operand: Operand<'_, S>,
    (lanes, depth): (Range<usize>, Range<usize>),
    (cut, steps): (Cut, usize),
    out: *mut u32,
    scratch: &mut [S],
) -> bool {
    let Cut::Vectors(LANES) = cut else {
        return false;
    };
    let codes = operand.source.nibbles();
    let Some(codes) = codes.filter(|codes| codes.have_tables(isa)) else {
        return false;
    };
    let (_, width) = operand.source.size();
    // The elements along rows, and the scales and zero points that are read at a time.
    let (along_row, numbers) = match operand.summed {
        Summed::Cols => (&depth, 2 * blocks(&codes, &depth).len() * WIDE),
        Summed::Rows => (&lanes, 2 * 2 * (width / codes.block)),
    };
    let is_whole = (along_row.start | along_row.len()).is_multiple_of(UNIT);
    if !is_whole || along_row.is_empty() || numbers > scratch.len() {
        return false;
    }
    let scratch = S::as_f32(scratch).expect("sums of bf16 are in f32");
    // SAFETY: the caller's promises; the instructions were detected.
    unsafe {
        match operand.summed {
            Summed::Cols => pack_rows(&codes, width, (lanes, depth), (cut, steps), out, scratch),
            Summed::Rows => pack_columns(&codes, width, (lanes, depth), steps, out, scratch),
        }
    }
    true
}

/// The blocks of some elements of a row.
fn blocks(codes: &Nibbles<'_>, some: &Range<usize>) -> Range<usize> {
    some.start / codes.block..some.end.div_ceil(codes.block)
}

/// Packs rows as lanes.
///
/// # Safety
/// As [`pack`], with AVX-512 F, BW, VBMI and BF16.
unsafe fn pack_rows(
    codes: &Nibbles<'_>,
    width: usize,
    (lanes, depth): (Range<usize>, Range<usize>),
    (cut, steps): (Cut, usize),
    out: *mut u32,
    scratch: &mut [f32],
) {
    let count = width / codes.block;
    let blocks = blocks(codes, &depth);
    for panel in (0..cut.count(lanes.len())).map(|idx| cut.panel(lanes.len(), idx)) {
        let rows = lanes.start + panel.start..lanes.start + panel.start + panel.lanes;
        codes.gather(rows.clone(), count, blocks.clone(), scratch);
        let (scales, zeros) = scratch.split_at(blocks.len() * WIDE);
        let numbers = (scales, codes.has_zeros.then_some(zeros));
        let (vectors, some) = (panel.stride / LANES, (depth.start, depth.len()));
        let weight = CodeRows::new(codes, (rows, width), some, numbers, vectors);
        let store = match (vectors, codes.is_split()) {
            (1, false) => store_rows::<1, false>,
            (1, true) => store_rows::<1, true>,
            (_, false) => store_rows::<2, false>,
            (_, true) => store_rows::<2, true>,
        };
        // SAFETY: the panel has room; the codes and numbers were just checked.
        unsafe { store(&weight, depth.len(), out.add(panel.start * steps)) };
    }
}

/// Stores the pairs of `V` vectors of rows, step after step.
///
/// # Safety
/// The CPU has the features; the weight has codes and scales for the depth, `out` room for it.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512bf16")]
unsafe fn store_rows<const V: usize, const SLOTS: bool>(
    weight: &CodeRows<'_>,
    depth: usize,
    mut out: *mut u32,
) {
    let mut tables = [[[_mm512_setzero_si512(); 2]; 4]; V];
    let (mut left, mut next, mut block) = (0, weight.left_in_block, 0);
    let bits: [_; V] = std::array::from_fn(|vector| {
        [0, 1].map(|four| [0, 1, 2, 3].map(|i| bits_of::<SLOTS>(weight, vector * LANES + i, four)))
    });
    let per_line = if SLOTS { LINE } else { 2 * LINE };
    for line in (0..depth).step_by(per_line) {
        let elements = (depth - line).min(per_line);
        let (at, bytes) = (line * LINE / per_line, elements * LINE / per_line);
        // SAFETY: codes of the depth.
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
            for (vector, tables) in tables.iter().enumerate() {
                for four in 0..UNIT / 8 {
                    let bits = &bits[vector][if SLOTS { 0 } else { four % 2 }];
                    let word = (unit * UNIT / 8 + four) / if SLOTS { 1 } else { 2 };
                    let pairs = decode(&lines[vector], word, bits, weight.mask, tables);
                    for (step, pairs) in pairs.into_iter().enumerate() {
                        // SAFETY: a step of the panel.
                        unsafe {
                            let to = out.add((4 * four + step) * V * LANES + vector * LANES);
                            _mm512_storeu_ps(to.cast(), pairs);
                        }
                    }
                }
            }
            out = out.wrapping_add(UNIT / 2 * V * LANES);
        }
    }
}

/// Packs columns as lanes, whole panels.
///
/// # Safety
/// As [`pack_rows`].
unsafe fn pack_columns(
    codes: &Nibbles<'_>,
    width: usize,
    (lanes, depth): (Range<usize>, Range<usize>),
    steps: usize,
    out: *mut u32,
    scratch: &mut [f32],
) {
    let count = width / codes.block;
    let (scales, zeros) = scratch.split_at_mut(scratch.len() / 2);
    let some_rows = scales.len() / count / 2 * 2;
    let store = if codes.is_split() {
        store_columns::<true>
    } else {
        store_columns::<false>
    };
    for first in depth.clone().step_by(some_rows) {
        let rows = first..(first + some_rows).min(depth.end);
        let numbers = rows.len() * count;
        codes.scales.scales(first * count, &mut scales[..numbers]);
        if codes.has_zeros {
            codes.scales.zeros(first * count, &mut zeros[..numbers]);
        }
        let row = |row: usize| {
            let from = (row - first) * count + lanes.start / codes.block;
            let (bytes, shift) = codes.row((row, width), lanes.clone());
            CodeRow {
                bytes: bytes.as_ptr(),
                shift,
                scales: scales[from..].as_ptr(),
                zeros: codes.has_zeros.then(|| zeros[from..].as_ptr()),
            }
        };
        for even in rows.clone().step_by(2) {
            let odd = (even + 1 < rows.end).then(|| row(even + 1));
            let at = (even - depth.start) / 2 * 2 * LANES;
            // SAFETY: the panels have this step, the rows codes and numbers for all lanes.
            unsafe {
                let to = (out.add(at), 2 * LANES * steps);
                store(codes, (row(even), odd), lanes.clone(), to);
            }
        }
    }
}

/// Some codes of a row.
#[derive(Clone, Copy)]
struct CodeRow {
    bytes: *const u8,
    /// The bits of a code in a byte, where it has one of its own: how many are below it.
    shift: u8,
    /// The scale of the first code's block, and those of the blocks after it.
    scales: *const f32,
    zeros: Option<*const f32>,
}

/// Stores the pairs of two rows, 32 columns in each panel; `out` is the step's place in the first
/// one and the distance to the next. Without a second row, zeros take its place.
///
/// A lookup's table holds the scaled values of the even row's block, then those of the odd one's.
///
/// # Safety
/// The CPU has the features; the rows have codes and numbers for the columns, `out` room for them.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512bf16")]
unsafe fn store_columns<const SLOTS: bool>(
    codes: &Nibbles<'_>,
    (even, odd): (CodeRow, Option<CodeRow>),
    columns: Range<usize>,
    (out, step): (*mut u32, usize),
) {
    // SAFETY: 16 values of the table.
    let numbers = unsafe { _mm512_loadu_ps(codes.table.as_ptr()) };
    let values = |row: CodeRow, block: usize| {
        // SAFETY: the block's numbers.
        let [scale, zero] = unsafe {
            [
                *row.scales.add(block),
                row.zeros.map_or(0.0, |zeros| *zeros.add(block)),
            ]
        };
        scaled(numbers, scale, zero)
    };
    let odd_codes = odd.unwrap_or(even);
    let mask = _mm512_set1_epi16(i16::from(codes.codes.mask()));
    let of_odd = _mm512_set1_epi32(0x0010_0000);
    let shifts = _mm512_set1_epi32(i32::from(even.shift) | i32::from(odd_codes.shift) << 16);
    // Where the codes of two columns begin: of the even row, of the odd one, and of both again.
    let bits = _mm512_set1_epi64(match codes.codes.order {
        BitOrder::LowFirst => 0x000C_0004_0008_0000,
        _ => 0x0008_0000_000C_0004,
    });
    let mut table = _mm512_setzero_si512();
    for column in columns.clone().step_by(UNIT) {
        if column == columns.start || column.is_multiple_of(codes.block) {
            let block = column / codes.block - columns.start / codes.block;
            let odd_values = odd.map_or(_mm512_setzero_ps(), |odd| values(odd, block));
            let halves = _mm512_cvtne2ps_pbh(odd_values, values(even, block));
            // SAFETY: both are 512 bits that are all valid.
            table = unsafe { std::mem::transmute::<__m512bh, __m512i>(halves) };
        }
        let at = column - columns.start;
        for half in [0, LANES] {
            let codes = if SLOTS {
                // SAFETY: 16 codes of each row.
                let [a, b] = [even, odd_codes]
                    .map(|row| unsafe { _mm_loadu_si128(row.bytes.add(at + half).cast()) });
                let both = _mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b));
                _mm512_srlv_epi16(_mm512_cvtepu8_epi16(both), shifts)
            } else {
                // SAFETY: 16 codes of each row.
                let [a, b] = [even, odd_codes]
                    .map(|row| unsafe { _mm_loadl_epi64(row.bytes.add((at + half) / 2).cast()) });
                let both = _mm512_cvtepu16_epi64(_mm_unpacklo_epi8(a, b));
                _mm512_multishift_epi64_epi8(bits, both)
            };
            let places = _mm512_ternarylogic_epi32::<0xEA>(codes, mask, of_odd);
            // SAFETY: half of a step of the panel.
            unsafe {
                let to = out.add(at / UNIT * step + half);
                _mm512_storeu_si512(to.cast(), _mm512_permutexvar_epi16(places, table));
            }
        }
    }
}

#[cfg(test)]
mod tests;
