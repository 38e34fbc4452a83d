//! Overlaps of a launch's ranges that a kernel allows.

/// Overlaps that a kernel allows between a launch's ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// No output may overlap another range.
    None,
    /// Output 0 may be exactly the range of the input with this index.
    InPlaceOf(usize),
}
