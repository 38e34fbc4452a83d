//! The memory of one task of a product.

/// Elements between the end of a row of sums and the next row, so that rows do not share their
/// places in a cache.
pub(super) const ROW_GAP: usize = 16;

/// A task's own memory beside its sums.
pub(super) struct TaskSpace<'a, S> {
    /// For widening and decoding.
    pub scratch: &'a mut [S],
    /// Packed rows of a part.
    pub left: &'a mut [S],
    /// Packed columns of a part, where the task packs them itself.
    pub right: &'a mut [S],
    pub edge: &'a mut [S],
}
