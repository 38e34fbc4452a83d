//! Packed rows and packed columns of a part of the depth -> a tile of the output, on the calling
//! thread.
#![allow(unsafe_code)] // Calls of micro-kernels.

mod tiled;

use std::ops::Range;

use super::depth::{DEPTH, Depth};
use super::lying_cols::LyingCols;
use super::lying_rows::LyingRows;
use super::pack::pack;
use super::panel::{Cut, Panel, STRIP, TAIL, TILED_ROWS};
use super::source::Operand;
use super::tile::Tile;
use super::tiles::{self, Hints, TileModel};
use super::{Isa, Scalar, Update};

/// Rows of the left operand that a small product packs at a time.
const ROWS: usize = 112;
/// Bytes of the right operand's columns that a small product packs at a time.
const RIGHT_BYTES: usize = 512 * 1024;
/// Most rows and columns of a micro-tile, without tiles of AMX.
const MICRO_ROWS: usize = 14;
pub(super) const PANEL_COLS: usize = 32;
/// Most rows of a panel.
pub(crate) const PANEL_ROWS: usize = TILED_ROWS;
/// Columns whose panels stay in the second-level cache while rows are multiplied by them.
pub(super) const GROUP_COLS: usize = 8 * PANEL_COLS;
/// The same for tiles: a panel of rows stays in the first-level cache for so many columns.
const TILED_GROUP_COLS: usize = 16 * PANEL_COLS;
/// Elements of the largest micro-tile, for edges.
pub(super) const EDGE: usize = MICRO_ROWS * PANEL_COLS;

/// Columns of the right operand that a small product packs at a time: 512 in f32, 256 in f64.
const fn columns<S>() -> usize {
    RIGHT_BYTES / DEPTH / size_of::<S>()
}

/// Columns of a group that `isa` multiplies some rows by.
pub(super) fn group_cols(isa: Isa) -> usize {
    if isa.has_tiles() {
        TILED_GROUP_COLS
    } else {
        GROUP_COLS
    }
}

/// Elements of `S` that [`multiply_into`] needs: packed blocks, a strip and an edge tile.
pub(crate) const fn space<S>() -> usize {
    columns::<S>() * DEPTH + ROWS * DEPTH + STRIP + EDGE + 2 * TAIL
}

/// Packed rows of the left operand times packed columns of the right one, over one part of the
/// depth.
pub(super) struct PackedPart<'a, S> {
    pub isa: Isa,
    /// Panels of the rows, cut by [`left_cut`].
    pub left: &'a [S],
    /// The rows themselves, where they are read in place of panels.
    pub as_they_lie: Option<LyingRows<'a, S>>,
    /// Number of rows.
    pub rows: usize,
    /// Panels of the columns, cut by [`right_cut`].
    pub right: &'a [S],
    /// The columns themselves, where they are read in place of panels.
    pub lying_cols: Option<LyingCols<'a, S>>,
    /// Number of columns.
    pub cols: usize,
    /// Steps of the part.
    pub steps: usize,
    /// What tiles ask for meanwhile.
    pub hints: Hints,
}

/// A part of few steps, which is the whole depth of another product of the same rows and columns.
pub(super) struct Narrow<'a, S> {
    pub part: PackedPart<'a, S>,
    /// [`TILED_ROWS`] rows of [`narrow_cols`] sums, which is the stride, too.
    pub sums: Tile<S>,
}

impl<S: Scalar> Narrow<'_, S> {
    /// The sums of a panel of rows from column `col` of the part on, as far as they are kept.
    pub fn sums(&self, col: usize) -> Tile<S> {
        // SAFETY: less than a row.
        unsafe { self.sums.from(0, col % self.sums.stride) }
    }
}

/// Columns of a narrow part whose sums are kept: those of a group, or with tiles of two panels.
pub(super) fn narrow_cols(isa: Isa) -> usize {
    if isa.has_tiles() {
        2 * PANEL_COLS
    } else {
        GROUP_COLS
    }
}

/// How rows of the left operand are cut into panels.
pub(super) fn left_cut<S: Scalar>(isa: Isa) -> Cut {
    if isa.has_tiles() {
        Cut::Tiles
    } else {
        Cut::Even(S::kernels(isa).rows)
    }
}

/// How columns of the right operand are cut into panels.
pub(super) fn right_cut<S: Scalar>(isa: Isa) -> Cut {
    if isa.has_tiles() {
        Cut::Vectors(PANEL_COLS / 2)
    } else {
        Cut::Vectors(S::kernels(isa).lanes)
    }
}

/// Packs rows of the left operand, which `cols` columns are multiplied by, into `out`; or returns
/// them where they are read from the operand itself.
pub(super) fn pack_left<'a, S: Scalar>(
    isa: Isa,
    operand: Operand<'a, S>,
    (rows, cols): (Range<usize>, usize),
    depth: Range<usize>,
    out: &mut [S],
    scratch: &mut [S],
) -> Option<LyingRows<'a, S>> {
    let lying = if isa.has_tiles() {
        tiles::left::as_they_lie(operand, rows.clone(), depth.clone())
    } else {
        LyingRows::of(isa, operand, (rows.clone(), cols), depth.clone())
    };
    if lying.is_none() {
        pack(isa, operand, rows, depth, left_cut::<S>(isa), out, scratch);
    }
    lying
}

impl<S: Scalar> PackedPart<'_, S> {
    /// Computes `tile(rows, cols) (=|+=)` the product, micro-tile by micro-tile. Without an `edge`,
    /// tiles have room for whole panels of columns.
    ///
    /// `done(rows, cols)` is called after a panel of rows is multiplied by some columns: those of a
    /// group of panels, which stay in the second-level cache for all rows, or one panel of tiles.
    /// Before, the panel is multiplied by these columns of a `narrow` part, if there is one.
    ///
    /// Without tiles, what is accumulated is the part's sum; with them, its products are added to
    /// the earlier sum one after the other.
    ///
    /// # Safety
    /// The CPU can run the instruction set. What `tile` returns has the panels' lanes as rows and
    /// columns; no other thread uses it.
    pub unsafe fn multiply(
        &self,
        update: Update,
        mut edge: Option<&mut [S]>,
        tile: impl Fn(Panel, Panel) -> Tile<S>,
        narrow: Option<&Narrow<'_, S>>,
        done: impl FnMut(Panel, Range<usize>),
    ) {
        let has_room = edge.is_none();
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            Isa::AmxBf16 => {
                // SAFETY: the caller's promises; the unit is this thread's only one.
                unsafe {
                    let mut unit = tiles::amx::Amx::new();
                    self.multiply_by_tiles(&mut unit, (update, has_room), tile, narrow, done);
                }
            }
            Isa::AmxModel => {
                let mut unit = TileModel::new();
                // SAFETY: the caller's promises.
                unsafe {
                    self.multiply_by_tiles(&mut unit, (update, has_room), tile, narrow, done);
                }
            }
            _ => {
                let micro = |a: Panel, b: Panel| {
                    // SAFETY: the tile is the caller's.
                    unsafe { self.micro((a, b), tile(a, b), update, edge.as_deref_mut()) };
                };
                let narrow = |a: Panel, b: Panel| {
                    if let Some(narrow) = narrow {
                        let to = narrow.sums(b.start);
                        // SAFETY: there is room for whole panels of a group.
                        unsafe { narrow.part.micro((a, b), to, Update::Overwrite, None) };
                    }
                };
                self.each_tile(micro, narrow, done);
            }
        }
    }

    /// A micro-tile of these panels.
    ///
    /// # Safety
    /// As [`micro_tile`].
    unsafe fn micro(
        &self,
        (a, b): (Panel, Panel),
        to: Tile<S>,
        update: Update,
        edge: Option<&mut [S]>,
    ) {
        let (isa, steps) = (self.isa, self.steps);
        let kernels = S::kernels(isa);
        let (table, left) = match self.as_they_lie {
            Some(LyingRows::Own(values, [row, step])) => {
                let values = &values[a.start * row..];
                debug_assert!(values.len() > (a.lanes - 1) * row + (steps - 1) * step);
                (kernels.of_lying, (values.as_ptr(), [row, step]))
            }
            _ => {
                let panel = &self.left[a.start * steps..];
                debug_assert!(panel.len() >= a.lanes * steps);
                (kernels.table, (panel.as_ptr(), [1, a.lanes]))
            }
        };
        let (table, left, right) = match self.lying_cols {
            Some(LyingCols(values, stride)) => {
                let values = &values[b.start..];
                debug_assert!(values.len() >= (steps - 1) * stride + b.stride);
                (kernels.of_lying_cols, (left.0, [1, stride]), values)
            }
            None => {
                let panel = &self.right[b.start * steps..];
                debug_assert!(panel.len() >= b.stride * steps);
                (table, left, panel)
            }
        };
        let kernel = table[a.lanes - 1][b.stride / kernels.lanes - 1];
        // SAFETY: the rows and panels of these sides; the tile is the caller's.
        unsafe {
            let tile = |to: *mut S, stride: usize, update: Update| {
                kernel(steps, left, right.as_ptr(), to, stride, update);
            };
            micro_tile((a, b), tile, to, update, edge);
        }
    }

    /// Calls `micro` and `narrow` for each tile, and `done` as [`PackedPart::multiply`] says; not
    /// for tiles of AMX.
    fn each_tile(
        &self,
        mut micro: impl FnMut(Panel, Panel),
        narrow: impl Fn(Panel, Panel),
        mut done: impl FnMut(Panel, Range<usize>),
    ) {
        let (left_cut, right_cut) = (left_cut::<S>(self.isa), right_cut::<S>(self.isa));
        let panels = right_cut.count(self.cols);
        let group = GROUP_COLS / right_cut.panel(GROUP_COLS, 0).lanes;
        for first in (0..panels).step_by(group) {
            let columns =
                (first..(first + group).min(panels)).map(|j| right_cut.panel(self.cols, j));
            for i in 0..left_cut.count(self.rows) {
                let a = left_cut.panel(self.rows, i);
                columns.clone().for_each(|b| micro(a, b));
                columns.clone().for_each(|b| narrow(a, b));
                let first = first / group * GROUP_COLS;
                done(a, first..(first + GROUP_COLS).min(self.cols));
            }
        }
    }
}

/// `out (=|+=) left right`, all of it, into rows `stride` apart, on the calling thread.
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
    let ((rows, elements), (cols, right_elements)) = (left.size(), right.size());
    assert_eq!(elements, right_elements, "the operands' depths differ");
    if rows == 0 || cols == 0 {
        return;
    }
    assert!(
        stride >= cols && out.len() >= (rows - 1) * stride + cols,
        "a product does not fit its output"
    );
    let depth = Depth::new(isa, elements);
    let (packed_right, rest) = space.split_at_mut(columns::<S>() * DEPTH + TAIL);
    let (packed_left, rest) = rest.split_at_mut(ROWS * DEPTH + TAIL);
    let (scratch, edge) = rest.split_at_mut(STRIP);
    let out = Tile {
        start: out.as_mut_ptr(),
        stride,
    };
    for col in (0..cols).step_by(columns::<S>()) {
        let some_cols = col..(col + columns::<S>()).min(cols);
        for part in 0..depth.parts() {
            let (elements, steps) = (depth.part(part), depth.steps(part));
            let update = if part == 0 {
                update
            } else {
                Update::Accumulate
            };
            let cut = right_cut::<S>(isa);
            pack(
                isa,
                right,
                some_cols.clone(),
                elements.clone(),
                cut,
                packed_right,
                scratch,
            );
            for row in (0..rows).step_by(ROWS) {
                let some_rows = row..(row + ROWS).min(rows);
                let as_they_lie = pack_left(
                    isa,
                    left,
                    (some_rows.clone(), some_cols.len()),
                    elements.clone(),
                    packed_left,
                    scratch,
                );
                let product = PackedPart {
                    isa,
                    left: packed_left,
                    as_they_lie,
                    rows: some_rows.len(),
                    right: packed_right,
                    lying_cols: None,
                    cols: some_cols.len(),
                    steps,
                    hints: Hints::default(),
                };
                // SAFETY: rows and columns of `out`, which is borrowed here alone; values of `Isa`
                // come from detection.
                unsafe {
                    let tile = |a: Panel, b: Panel| out.from(row + a.start, col + b.start);
                    product.multiply(update, Some(edge), tile, None, |_, _| ());
                }
            }
        }
    }
}

/// One micro-tile by `kernel`; where it is narrower than its panel, through `edge`, if there is
/// one.
///
/// # Safety
/// `kernel` writes the panels' lanes as rows and columns; `tile` has them, without an `edge` the
/// whole panel's columns.
#[inline]
unsafe fn micro_tile<S: Scalar>(
    (a, b): (Panel, Panel),
    kernel: impl Fn(*mut S, usize, Update),
    tile: Tile<S>,
    update: Update,
    edge: Option<&mut [S]>,
) {
    let Some(edge) = edge.filter(|_| b.lanes < b.stride) else {
        return kernel(tile.start, tile.stride, update);
    };
    assert!(
        edge.len() >= a.lanes * b.stride,
        "the edge tile is too small"
    );
    kernel(edge.as_mut_ptr(), b.stride, Update::Overwrite);
    for row in 0..a.lanes {
        // SAFETY: a row of the tile.
        let out = unsafe { tile.row(row, 0, b.lanes) };
        for (out, sum) in out.iter_mut().zip(&edge[row * b.stride..]) {
            *out = match update {
                Update::Overwrite => *sum,
                Update::Accumulate => *out + *sum,
            };
        }
    }
}
