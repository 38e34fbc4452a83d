//! Two operands and a tile of the output -> the tile's values, on the calling thread.
//!
//! The depth is cut every [`DEPTH`] steps of a panel, which are elements or pairs of bf16. A block
//! of the right operand is packed once for all rows of the tile and stays in the second-level
//! cache, panels of the left one in the first.
#![allow(unsafe_code)] // Calls of micro-kernels.

use std::ops::Range;

use super::pack::pack;
use super::panel::{Cut, Panel, STRIP, TAIL};
use super::source::Operand;
use super::{Isa, Scalar, Update};

/// Steps of a partial sum: elements of the depth, or pairs of bf16. The result's bits depend on it:
/// it is never tuned by machine.
pub const DEPTH: usize = 256;
/// Rows of the left operand packed at a time.
pub(super) const ROWS: usize = 112;
/// Bytes of a packed block of the right operand.
const RIGHT_BYTES: usize = 512 * 1024;
/// Elements of the largest micro-tile, for edges: 14 rows of 32.
const EDGE: usize = 14 * 32;

/// Columns of the right operand packed at a time: 512 in f32, 256 in f64.
pub(super) const fn columns<S>() -> usize {
    RIGHT_BYTES / DEPTH / size_of::<S>()
}

/// Elements of `S` that [`multiply`] needs: packed blocks, a strip and an edge tile.
pub(crate) const fn space<S>() -> usize {
    columns::<S>() * DEPTH + ROWS * DEPTH + STRIP + EDGE + 2 * TAIL
}

/// The output of [`multiply`]: rows `stride` elements apart, from `start` on.
///
/// Where `passing` is set, rows that are complete make room for the next: those of one call of
/// `done` lie at the start. The depth must then be one partial sum ([`is_one_sum`]).
#[derive(Clone, Copy)]
pub(crate) struct Tile<S> {
    /// The first row's first element.
    pub start: *mut S,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Whether rows make room for the next once they are complete.
    pub passing: bool,
}

/// True where products of this depth by `isa` are one partial sum.
pub(crate) fn is_one_sum(isa: Isa, depth: usize) -> bool {
    (1..=DEPTH * isa.depth_of_step()).contains(&depth)
}

/// `tile (=|+=) left[rows] right[cols]`: the product of some rows and columns, over the whole
/// depth.
///
/// `done(rows, cols)` is called as soon as these rows and columns of the tile, counted in it, are
/// complete: a few rows at a time, which are then still in the first cache.
///
/// # Panics
/// Where `space` is too small, or the operands' depths differ.
///
/// # Safety
/// The CPU can run `isa`. The tile's elements are writable, and no other thread uses them.
pub(crate) unsafe fn multiply<S: Scalar>(
    isa: Isa,
    (left, right): (Operand<'_, S>, Operand<'_, S>),
    (rows, cols): (Range<usize>, Range<usize>),
    (tile, update): (Tile<S>, Update),
    space: &mut [S],
    mut done: impl FnMut(Range<usize>, Range<usize>),
) {
    let depth = left.size().1;
    assert_eq!(depth, right.size().1, "the operands' depths differ");
    if rows.is_empty() || cols.is_empty() {
        return;
    }
    assert!(tile.stride >= cols.len(), "a tile's rows overlap");
    assert!(
        !tile.passing || is_one_sum(isa, depth),
        "rows with several partial sums must be kept"
    );
    if depth == 0 {
        if update == Update::Overwrite {
            for row in 0..rows.len() {
                // SAFETY: a row of the tile.
                unsafe { std::slice::from_raw_parts_mut(tile.row(row), cols.len()) }.fill(S::ZERO);
            }
        }
        done(0..rows.len(), 0..cols.len());
        return;
    }
    let (packed_right, rest) = space.split_at_mut(columns::<S>() * DEPTH + TAIL);
    let (packed_left, rest) = rest.split_at_mut(ROWS * DEPTH + TAIL);
    let (scratch, edge) = rest.split_at_mut(STRIP);
    let kernels = S::kernels(isa);
    let (left_cut, right_cut) = (Cut::Even(kernels.rows), Cut::Vectors(kernels.lanes));
    let per_step = isa.depth_of_step();
    for col in cols.clone().step_by(columns::<S>()) {
        let some_cols = col..(col + columns::<S>()).min(cols.end);
        for k in (0..depth).step_by(DEPTH * per_step) {
            let elements = k..(k + DEPTH * per_step).min(depth);
            let steps = elements.len().div_ceil(per_step);
            let update = if k == 0 { update } else { Update::Accumulate };
            pack(
                isa,
                right,
                some_cols.clone(),
                elements.clone(),
                right_cut,
                packed_right,
                scratch,
            );
            for row in rows.clone().step_by(ROWS) {
                let some_rows = row..(row + ROWS).min(rows.end);
                pack(
                    isa,
                    left,
                    some_rows.clone(),
                    elements.clone(),
                    left_cut,
                    packed_left,
                    scratch,
                );
                for i in 0..left_cut.count(some_rows.len()) {
                    let a = left_cut.panel(some_rows.len(), i);
                    let first = row - rows.start + a.start;
                    for j in 0..right_cut.count(some_cols.len()) {
                        let b = right_cut.panel(some_cols.len(), j);
                        let left = &packed_left[a.start * steps..];
                        let right = &packed_right[b.start * steps..];
                        // SAFETY: panels `a` and `b` belong to this part of the tile.
                        unsafe {
                            let place = if tile.passing { 0 } else { first };
                            let start = tile.row(place).add(col - cols.start + b.start);
                            let tile = Tile { start, ..tile };
                            micro_tile(isa, (a, b), (left, right), steps, tile, update, edge);
                        }
                    }
                    if elements.end == depth {
                        let columns = col - cols.start..some_cols.end - cols.start;
                        done(first..first + a.lanes, columns);
                    }
                }
            }
        }
    }
}

/// `out (=|+=) left right`, all of it, into rows `stride` apart.
///
/// # Panics
/// Where `out` or `space` is too small, or the operands' depths differ.
pub(crate) fn multiply_into<S: Scalar>(
    isa: Isa,
    (left, right): (Operand<'_, S>, Operand<'_, S>),
    (out, stride): (&mut [S], usize),
    update: Update,
    space: &mut [S],
) {
    let (rows, cols) = (left.size().0, right.size().0);
    assert!(
        rows == 0 || out.len() >= (rows - 1) * stride + cols,
        "a product does not fit its output"
    );
    let tile = Tile {
        start: out.as_mut_ptr(),
        stride,
        passing: false,
    };
    // SAFETY: the tile is in `out`, which is borrowed here alone; values of `Isa` come from
    // detection.
    unsafe {
        multiply(
            isa,
            (left, right),
            (0..rows, 0..cols),
            (tile, update),
            space,
            |_, _| (),
        )
    };
}

impl<S> Tile<S> {
    /// Where row `idx` starts.
    ///
    /// # Safety
    /// The tile has that row.
    unsafe fn row(self, idx: usize) -> *mut S {
        // SAFETY: within the tile, by the caller's promise.
        unsafe { self.start.add(idx * self.stride) }
    }
}

/// One micro-tile; where it is narrower than its panel, through `edge`.
///
/// # Safety
/// The CPU can run `isa`; `tile` has the panels' lanes as rows and columns.
#[inline]
unsafe fn micro_tile<S: Scalar>(
    isa: Isa,
    (a, b): (Panel, Panel),
    (left, right): (&[S], &[S]),
    depth: usize,
    tile: Tile<S>,
    update: Update,
    edge: &mut [S],
) {
    let kernels = S::kernels(isa);
    let kernel = kernels.table[a.lanes - 1][b.stride / kernels.lanes - 1];
    debug_assert!(left.len() >= a.lanes * depth && right.len() >= b.stride * depth);
    let (left, right) = (left.as_ptr(), right.as_ptr());
    if b.lanes == b.stride {
        // SAFETY: the panels were packed with these strides and this depth; the tile is the
        // caller's.
        unsafe { kernel(depth, left, right, tile.start, tile.stride, update) };
        return;
    }
    assert!(
        edge.len() >= a.lanes * b.stride,
        "the edge tile is too small"
    );
    // SAFETY: as above; `edge` has room for the whole micro-tile.
    unsafe {
        kernel(
            depth,
            left,
            right,
            edge.as_mut_ptr(),
            b.stride,
            Update::Overwrite,
        )
    };
    for row in 0..a.lanes {
        // SAFETY: a row of the tile.
        let out = unsafe { std::slice::from_raw_parts_mut(tile.row(row), b.lanes) };
        for (out, sum) in out.iter_mut().zip(&edge[row * b.stride..]) {
            *out = match update {
                Update::Overwrite => *sum,
                Update::Accumulate => *out + *sum,
            };
        }
    }
}
