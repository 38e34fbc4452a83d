//! What can be wrong with the quantizer, one at a time.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The second code of a pair goes where the first belongs.
    SwappedNibbles,
    /// Every code goes one place behind its own.
    ShiftedNibbles,
    /// The encoder's blocks begin one element early.
    ShiftedBlock,
    /// The 8-bit scales are not divided by their own scale.
    NestedNotApplied,
    /// All calls of all threads put their scales into one place.
    SharedScratch,
    /// Rounding depends on how often the encoder was called.
    CountsCalls,
    /// Rounding depends on where the weight lies.
    ReadsAddresses,
    /// A sum is split by the number of threads.
    CountsThreads,
    /// The workspace is written beyond what is asked for.
    WorkspaceOverrun,
    /// The format states another table than `decode` uses.
    OtherTable,
    /// A range of columns takes its scales as if it began at a block.
    ColumnOffset,
    /// The block size is always 64.
    Deaf,
    /// A block size of zero is believed.
    Trusting,
    /// The last element of an odd number is not coded.
    LostTail,
    /// The unused half of the last byte is left as it was.
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
