//! A part of a product of few rows: a weight in codes of four bits and less, decoded in registers.
//!
//! Words of eight codes are transposed; a code's value is looked up, scaled and multiplied at once.
//! Products of bf16 by codes with zero points, and those of one row, look up values that were
//! scaled and rounded once a block (`pairs.rs`). So a value has the bits that a decoder writes to
//! memory.
#![allow(unsafe_code)] // Vector intrinsics and raw rows.

#[cfg(target_arch = "x86_64")]
mod pairs;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;

use espalier_interface::format::BitOrder;

use super::{LANES, Part};
use crate::matmul::Isa;
use crate::matmul::nibbles::{Nibbles, WIDE};

impl Nibbles<'_> {
    /// True where `isa` has kernels for these codes.
    pub(super) fn are_served(&self, isa: Isa) -> bool {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx512Bf16 | Isa::Avx2 if self.is_codebook_in_pairs() => true,
            _ => self.have_tables(isa),
        }
    }

    /// True where a product of so many rows is by tables: of codes that nothing else decodes, and
    /// of one row. With more, scaling each value is faster, but not in the order of tiles.
    fn are_by_tables(&self, isa: Isa, rows: usize) -> bool {
        let is_faster = rows == 1 || !self.is_codebook_in_pairs() || isa.has_tiles();
        is_faster && self.have_tables(isa)
    }

    /// Lanes of a kernel of AVX-512 for a number of rows: with few, the chains of sums of two
    /// vectors hide each other's latency.
    pub(super) fn lanes(&self, isa: Isa, rows: usize) -> usize {
        #[cfg(target_arch = "x86_64")]
        if rows <= pairs::MOST_ROWS_OF_TWO && self.are_by_tables(isa, rows) {
            return WIDE;
        }
        LANES
    }

    /// True where a byte holds two codes, and blocks have no zero points.
    fn is_codebook_in_pairs(&self) -> bool {
        !self.is_split() && !self.has_zeros
    }
}

/// Multiplies a part by the rows `rows` of the weight, from element `k` of them on; `scales` are
/// what [`Nibbles::gather`] wrote for all of the `width` elements of a row, from the first lane on.
///
/// # Safety
/// The CPU can run `isa`, which serves the codes; the part's rows and sums have room for it.
pub(super) unsafe fn multiply(
    isa: Isa,
    part: Part<f32>,
    codes: &Nibbles<'_>,
    (rows, width): (Range<usize>, usize),
    k: usize,
    scales: &[f32],
) {
    #[cfg(target_arch = "x86_64")]
    if codes.are_by_tables(isa, part.rows) {
        // SAFETY: the caller's promises.
        return unsafe {
            pairs::multiply(part, codes, (rows, width), k, (scales, isa.has_tiles()))
        };
    }
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
            low_first: codes.codes.order == BitOrder::LowFirst,
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
