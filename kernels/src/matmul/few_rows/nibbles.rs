//! A part of a product of few rows: a weight in codes of four bits, decoded in registers.
//!
//! Words of eight codes are transposed; a code's value is looked up, scaled and multiplied at once.
//! So a value has the bits that a decoder writes to memory, and takes four instructions.
#![allow(unsafe_code)] // Vector intrinsics and raw rows.

#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;

use super::{LANES, Part, WIDE};
use crate::matmul::Isa;
use crate::matmul::nibbles::Nibbles;

/// True where `isa` has kernels for codes.
pub(super) fn are_served(isa: Isa) -> bool {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx512Bf16 | Isa::Avx2 => true,
        _ => false,
    }
}

impl Nibbles<'_> {
    /// Writes the scales of at most [`WIDE`] rows of `depth` elements: those of the rows' first
    /// blocks side by side, then those of the second.
    pub(super) fn gather(&self, rows: Range<usize>, depth: usize, out: &mut [f32]) {
        const RUN: usize = 256;
        let count = depth / self.block;
        // Whole rows, or parts of one.
        let most = (RUN / count).max(1);
        let mut scales = [0.0; RUN];
        for row in rows.clone().step_by(most) {
            let some = most.min(rows.end - row);
            for first in (0..count).step_by(RUN) {
                let width = (count - first).min(RUN);
                let scales = &mut scales[..some * width];
                self.scales.scales(row * count + first, scales);
                for (lane, scales) in (row - rows.start..).zip(scales.chunks_exact(width)) {
                    let out = out[first * WIDE..].chunks_exact_mut(WIDE);
                    out.zip(scales).for_each(|(out, scale)| out[lane] = *scale);
                }
            }
        }
    }
}

/// Multiplies a part by the rows `rows` of the weight, from element `k` of them on; `scales` are
/// theirs, [`WIDE`] apart from one block to the next.
///
/// # Safety
/// The CPU can run `isa`; the part's rows and sums have room for it.
pub(super) unsafe fn multiply(
    isa: Isa,
    part: Part<f32>,
    codes: &Nibbles<'_>,
    (rows, width): (Range<usize>, usize),
    k: usize,
    scales: &[f32],
) {
    let lanes = rows.len();
    let bytes = &codes.bytes[(rows.start * width + k) / 2..];
    let needed = ((lanes - 1) * width + part.depth) / 2;
    let blocks = (k + part.depth).div_ceil(codes.block) - k / codes.block;
    let vector = if isa == Isa::Avx2 { 8 } else { LANES };
    let scales = &scales[k / codes.block * WIDE..];
    assert!(
        (k | part.depth | width | codes.block).is_multiple_of(16)
            && bytes.len() >= needed
            && scales.len() >= (blocks - 1) * WIDE + lanes.next_multiple_of(vector),
        "a packed weight is too small"
    );
    #[cfg(target_arch = "x86_64")]
    {
        let weight = x86::Weight {
            bytes: bytes.as_ptr(),
            stride: width / 2,
            lanes,
            low_first: codes.low_first,
            table: codes.table,
            scales: scales.as_ptr(),
            block: codes.block,
            left_in_block: codes.block - k % codes.block,
        };
        // SAFETY: the caller's promises; the weight was just checked.
        unsafe { x86::multiply(isa, part, weight) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("{isa:?} has no kernels for codes");
}
