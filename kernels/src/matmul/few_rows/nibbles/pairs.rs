//! The kernels for codes with AVX-512-BF16: pairs of scaled and rounded values, which are
//! multiplied as they are decoded.
#![allow(unsafe_code)] // Vector intrinsics and raw rows.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::matmul::Update;
use crate::matmul::few_rows::vectors::{flushed, load_sums, store};
use crate::matmul::few_rows::{LANES, MOST_ROWS_IN_ORDER_OF_TILES, Part};
use crate::matmul::micro::dot_pairs;
use crate::matmul::nibbles::tables::{CodeRows, LINE, UNIT, bits_of, decode, load, scale};
use crate::matmul::nibbles::{Nibbles, WIDE};

/// Most rows of the left operand that are multiplied by two vectors of columns at a time.
pub const MOST_ROWS_OF_TWO: usize = 8;

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
    let (first, all) = (k / codes.block * WIDE, width / codes.block * WIDE);
    let zeros = codes.has_zeros.then(|| &scales[all + first..]);
    let numbers = (&scales[first..], zeros);
    let vectors = if part.rows <= MOST_ROWS_OF_TWO { 2 } else { 1 };
    let weight = CodeRows::new(codes, (rows, width), (k, part.depth), numbers, vectors);
    let slots = usize::from(codes.is_split());
    let kernel = match part.rows {
        rows if is_tiled => TILED[slots][rows - 1],
        rows @ ..=MOST_ROWS_OF_TWO => TWO[slots][rows - 1],
        rows => ONE[slots][rows - MOST_ROWS_OF_TWO - 1],
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
