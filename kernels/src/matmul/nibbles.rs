//! A packed weight in codes of four bits, as products of few rows decode it themselves.

/// A weight whose values are a table of 16 times a scale per block of a row.
#[derive(Clone, Copy)]
pub struct Nibbles<'a> {
    /// Codes of four bits, row after row, two a byte.
    pub bytes: &'a [u8],
    /// Whether the first of two codes is in the low bits.
    pub low_first: bool,
    /// The value of a code.
    pub table: &'a [f32; 16],
    /// Elements of a block, a multiple of 16 of which the row's length is a multiple.
    pub block: usize,
    /// The scales.
    pub scales: &'a dyn BlockScales,
}

/// The scales of a weight's blocks.
pub trait BlockScales: Sync {
    /// Writes the scales of the blocks from `first` on, counted row after row.
    fn scales(&self, first: usize, out: &mut [f32]);
}
