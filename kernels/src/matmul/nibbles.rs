//! A packed weight in codes of at most four bits, as products of few rows decode it themselves.

use espalier_interface::format::Codes;

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
