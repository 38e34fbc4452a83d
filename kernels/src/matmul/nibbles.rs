//! A packed weight in codes of at most four bits, which products decode themselves.

#[cfg(target_arch = "x86_64")]
pub(super) mod tables;

use std::ops::Range;

use espalier_interface::format::{BitOrder, Codes};

use super::Isa;

/// Rows of a weight whose codes are decoded at a time: lanes of two vectors.
pub(super) const WIDE: usize = 32;

/// A weight whose values are `(table[code] - zero) * scale`, with a scale and a zero point per
/// block of a row.
#[derive(Clone, Copy)]
pub struct Nibbles<'a> {
    /// The codes.
    pub bytes: &'a [u8],
    /// Where they are. Those of a row lie side by side: two of four bits in each of its bytes, or
    /// all in the same bits of the bytes of a split order.
    pub codes: &'a Codes,
    /// The value of a code.
    pub table: &'a [f32; 16],
    /// Elements of a block, a multiple of 16 of which the row's length is a multiple.
    pub block: usize,
    /// The scales and zero points.
    pub scales: &'a dyn BlockScales,
    /// Whether blocks have zero points; else these are 0.
    pub has_zeros: bool,
}

/// The numbers of a weight's blocks, counted row after row.
pub trait BlockScales: Sync {
    /// Writes the scales of the blocks from `first` on.
    fn scales(&self, first: usize, out: &mut [f32]);

    /// Writes the zero points of the blocks from `first` on, where blocks have them.
    fn zeros(&self, first: usize, out: &mut [f32]);
}

impl Nibbles<'_> {
    /// True where `isa` can look up scaled and rounded values of these codes.
    pub(super) fn have_tables(&self, isa: Isa) -> bool {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 | Isa::AmxBf16 | Isa::AmxModel => {
                self.block.is_multiple_of(tables::UNIT) && crate::simd::has_avx512_bf16_and_vbmi()
            }
            _ => false,
        }
    }

    /// True where each code has bits of a byte of its own, false where a byte holds two.
    pub(super) fn is_split(&self) -> bool {
        matches!(self.codes.order, BitOrder::Split { .. })
    }

    /// Codes of a row in each of its bytes.
    pub(super) fn per_byte(&self) -> usize {
        if self.is_split() { 1 } else { 2 }
    }

    /// The bytes of some elements of row `row` of `width`, and how many bits are below a code in
    /// each of them where it has one of its own.
    ///
    /// # Panics
    /// Where the codes end before.
    pub(super) fn row(&self, (row, width): (usize, usize), some: Range<usize>) -> (&[u8], u8) {
        let (word, below) = self.codes.place((row * width) as u64);
        let first = word as usize + some.start / self.per_byte();
        let len = some.len() / self.per_byte();
        (&self.bytes[first..first + len], below as u8)
    }

    /// Numbers that [`Nibbles::gather`] writes for rows of `depth` elements.
    pub(super) fn room(&self, depth: usize) -> usize {
        depth / self.block * WIDE * (1 + usize::from(self.has_zeros))
    }

    /// Writes the scales of some blocks of at most [`WIDE`] rows, which have `count` each: those of
    /// the rows' first blocks side by side, then those of the second. Their zero points follow in
    /// the same way.
    pub(super) fn gather(
        &self,
        rows: Range<usize>,
        count: usize,
        blocks: Range<usize>,
        out: &mut [f32],
    ) {
        let (scales, zeros) = out.split_at_mut(blocks.len() * WIDE);
        gather(rows.clone(), count, blocks.clone(), scales, |first, out| {
            self.scales.scales(first, out)
        });
        if self.has_zeros {
            gather(rows, count, blocks, zeros, |first, out| {
                self.scales.zeros(first, out)
            });
        }
    }
}

/// Writes numbers of some of `count` blocks of each of some rows, which `read` gives row after row,
/// those of a block side by side.
fn gather(
    rows: Range<usize>,
    count: usize,
    blocks: Range<usize>,
    out: &mut [f32],
    read: impl Fn(usize, &mut [f32]),
) {
    const RUN: usize = 256;
    // Whole rows, or parts of one.
    let most = if blocks.len() == count {
        (RUN / count).max(1)
    } else {
        1
    };
    let mut numbers = [0.0; RUN];
    for row in rows.clone().step_by(most) {
        let some = most.min(rows.end - row);
        for first in blocks.clone().step_by(RUN) {
            let width = (blocks.end - first).min(RUN);
            let numbers = &mut numbers[..some * width];
            read(row * count + first, numbers);
            for (lane, numbers) in (row - rows.start..).zip(numbers.chunks_exact(width)) {
                let out = out[(first - blocks.start) * WIDE..].chunks_exact_mut(WIDE);
                out.zip(numbers).for_each(|(out, x)| out[lane] = *x);
            }
        }
    }
}
