//! In which direction a matrix of a product is contiguous.

/// Where element `(i, k)` of a matrix lies, k in the direction of the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// At `i stride + k`.
    Deep,
    /// At `i + k stride`.
    Wide,
}
