//! Possible bugs of the quantizer, one at a time.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The second code of a pair is written in place of the first.
    SwappedNibbles,
    /// Every code is written one position late.
    ShiftedNibbles,
    /// The encoder's blocks start one element early.
    ShiftedBlock,
    /// The 8-bit scales are not divided by their own scale.
    NestedNotApplied,
    /// All calls of all threads write their scales to the same place.
    SharedScratch,
    /// Rounding depends on the number of calls of the encoder.
    CountsCalls,
    /// Rounding depends on the address of the weight.
    ReadsAddresses,
    /// A sum is split by the number of threads.
    CountsThreads,
    /// The workspace is written beyond its requested size.
    WorkspaceOverrun,
    /// The format states another table than `decode` uses.
    OtherTable,
    /// A range of columns uses its scales as if it started at a block.
    ColumnOffset,
    /// The block size is always 64.
    Deaf,
    /// A block size of zero is accepted.
    Trusting,
    /// The last element of an odd number is not coded.
    LostTail,
    /// The unused half of the last byte is not written.
    StaleByte,
    /// All blocks of a weight of one row get the scale of the first.
    SingleRow,
    /// The block size of the newest instance is every instance's.
    GlobalOptions,
    /// The scale of a block of zeros is 0 / 0.
    NanZeros,
    /// Numbers that are not finite are encoded.
    TakesNan,
    /// The saved form has no tensor for the offset of the scales.
    DropsSegment,
}
