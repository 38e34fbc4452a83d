//! Some rows and columns of an output or of sums, in memory with other rows and columns.
#![allow(unsafe_code)] // Raw rows.

/// The first element of some rows and columns of an output, and the elements from one row to the
/// next.
#[derive(Clone, Copy)]
pub(super) struct Tile<S> {
    pub start: *mut S,
    pub stride: usize,
}

impl<S> Tile<S> {
    /// A tile of one row.
    pub fn of(row: &mut [S]) -> Self {
        Tile {
            start: row.as_mut_ptr(),
            stride: row.len(),
        }
    }

    /// The same tile where `S` is `T`.
    pub fn cast<T>(self) -> Tile<T> {
        Tile {
            start: self.start.cast(),
            stride: self.stride,
        }
    }

    /// The tile from row `row` and column `col` on.
    ///
    /// # Safety
    /// The tile has them.
    pub unsafe fn from(self, row: usize, col: usize) -> Self {
        // SAFETY: within the tile, by the caller's promise.
        let start = unsafe { self.start.add(row * self.stride + col) };
        Tile { start, ..self }
    }

    /// `len` elements of row `row` from column `col` on.
    ///
    /// # Safety
    /// The tile has them, and no other live slice does.
    pub unsafe fn row<'a>(self, row: usize, col: usize, len: usize) -> &'a mut [S] {
        // SAFETY: the caller's promises.
        unsafe { std::slice::from_raw_parts_mut(self.from(row, col).start, len) }
    }
}
