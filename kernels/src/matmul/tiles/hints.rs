//! Lines of memory that a unit asks for while it computes, a few with each tile of the depth.
//!
//! Asked for all at once, lines from beyond the second-level cache hold up what is loaded after
//! them.

use super::TileUnit;
use crate::matmul::panel::{ROW_BYTES, TILED_ROWS};

/// Rows whose lines are asked for with a tile of the depth: those of a panel with 8 tiles.
const AT_ONCE: usize = TILED_ROWS / 8;

/// Lines of each of some rows, at any address.
#[derive(Clone, Copy)]
pub(in crate::matmul) struct Lines {
    start: *const u8,
    /// Bytes from one row to the next.
    row: usize,
    /// Lines of a row, side by side.
    count: usize,
}

impl Lines {
    /// The lines that hold `start` and what follows it by multiples of `stride` elements, one of
    /// each row.
    pub fn new<T>(start: *const T, stride: usize) -> Self {
        Lines {
            start: start.cast(),
            row: stride * size_of::<T>(),
            count: 1,
        }
    }

    /// So many lines of each row.
    pub fn wide(self, count: usize) -> Self {
        Lines { count, ..self }
    }

    /// The lines that are `row` rows and `bytes` further on.
    pub fn from(self, row: usize, bytes: usize) -> Self {
        let start = self.start.wrapping_add(row * self.row + bytes);
        Lines { start, ..self }
    }

    /// Asks for those of the next few rows.
    #[inline(always)]
    pub fn ask(&mut self, unit: &impl TileUnit) {
        for _ in 0..AT_ONCE {
            for line in 0..self.count {
                unit.ask_for(self.start.wrapping_add(line * ROW_BYTES));
            }
            self.start = self.start.wrapping_add(self.row);
        }
    }
}

/// What is needed after a panel of rows is multiplied, or a block of them: nothing, by default.
#[derive(Clone, Copy, Default)]
pub(in crate::matmul) struct Hints {
    /// The rows that are read next, with all lines of each.
    pub coming: Option<Lines>,
    /// The rows that the sums go to, and those that are added there, from the first column on.
    pub ending: [Option<Lines>; 3],
}

impl Hints {
    /// The same for rows from `row` and columns of `bytes` from the first on.
    pub fn from(&self, row: usize, bytes: usize) -> Self {
        Hints {
            coming: self.coming.map(|lines| lines.from(row, 0)),
            ending: self.ending.map(|lines| Some(lines?.from(row, bytes))),
        }
    }

    /// What is asked for with block `at.0` of the `at.1` of a panel, which is completed as block
    /// `idx` of its columns, or is not.
    pub fn of_block(&self, at: (usize, usize), idx: Option<usize>) -> [Option<Lines>; 4] {
        let (block, blocks) = at;
        let coming = self.coming.and_then(|lines| {
            let [first, end] = [block, block + 1].map(|block| block * lines.count / blocks);
            let some = lines.from(0, first * ROW_BYTES).wide(end - first);
            (end > first).then_some(some)
        });
        let of = |lines: Option<Lines>| Some(lines?.from(0, idx? * ROW_BYTES));
        let [to, added, residual] = self.ending.map(of);
        [coming, to, added, residual]
    }
}
