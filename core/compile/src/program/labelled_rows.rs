//! Where a head's rows are brought together, so that it works on tokens with a label alone.

use super::value_location::ValueLocation;

/// The places between which the rows of tokens with a label move before a head's forward pass and
/// after its backward pass. Of each pair, the head uses the first; nothing uses the second at that
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelledRows {
    /// The hidden states that the head reads, `[T, D]`.
    pub hidden: [ValueLocation; 2],
    /// The gradient of hidden states that the head writes, `[T, D]`; none where no unit before it
    /// is trained.
    pub gradient: Option<[ValueLocation; 2]>,
}
