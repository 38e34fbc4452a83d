//! Packed rows and packed columns -> a tile of the output, by a unit for tiles.
#![allow(unsafe_code)] // Calls of micro-kernels.

use std::ops::Range;

use half::bf16;

use super::{Narrow, PANEL_COLS, PackedPart, left_cut, right_cut};
use crate::element::Element;
use crate::matmul::lying_rows::LyingRows;
use crate::matmul::panel::{Panel, ROW_BYTES, TILED_ROWS};
use crate::matmul::tile::Tile;
use crate::matmul::tiles::{self, Hints, LeftPanel, RightPanel, TileUnit};
use crate::matmul::{Scalar, Update};
use crate::simd::vectorized;

/// Sums of two panels.
#[repr(align(64))]
struct Beside([f32; TILED_ROWS * PANEL_COLS]);

impl<S: Scalar> PackedPart<'_, S> {
    /// [`PackedPart::multiply`] by a unit for tiles, which goes on with the sums that it
    /// accumulates. Where a tile has no room for a whole panel, its sums are beside it meanwhile.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn multiply_by_tiles<U: TileUnit>(
        &self,
        unit: &mut U,
        (update, has_room): (Update, bool),
        tile: impl Fn(Panel, Panel) -> Tile<S>,
        narrow: Option<&Narrow<'_, S>>,
        mut done: impl FnMut(Panel, Range<usize>),
    ) {
        assert!(S::DTYPE == f32::DTYPE, "sums of bf16 are in f32");
        let (left_cut, right_cut) = (left_cut::<S>(self.isa), right_cut::<S>(self.isa));
        let panel = |idx: usize| right_cut.panel(self.cols, idx);
        let is_whole = |b: &Panel| has_room || b.lanes == b.stride;
        let group = super::group_cols(self.isa);
        for first in (0..self.cols).step_by(group) {
            let cols = first..(first + group).min(self.cols);
            let panels = cols.start / PANEL_COLS..cols.end.div_ceil(PANEL_COLS);
            for a in (0..left_cut.count(self.rows)).map(|idx| left_cut.panel(self.rows, idx)) {
                let hints = self.hints.from(a.start, first * size_of::<bf16>());
                let left = self.left_panel(a, hints);
                let narrow = narrow.map(|narrow| {
                    let left = narrow.part.left_panel(a, Hints::default());
                    (narrow, left)
                });
                // A panel's sums are read while the unit computes the next one's.
                let mut earlier: Option<Panel> = None;
                let mut completed = |unit: &mut U, b: Panel| {
                    if let Some((narrow, left)) = &narrow {
                        let (part, to) = (&narrow.part, narrow.sums(b.start).cast());
                        let column = std::iter::once(part.right_panel(b, to));
                        let (steps, update) = (part.steps, Update::Overwrite);
                        // SAFETY: as below; the rows are the same, and so the unit's shapes.
                        unsafe { tiles::multiply(unit, steps, left, column, update, |_, _| ()) };
                    }
                    if let Some(b) = earlier.replace(b) {
                        done(a, b.range());
                    }
                };
                let columns = panels.clone().map(panel).filter(is_whole);
                let columns = columns.map(|b| self.right_panel(b, tile(a, b).cast()));
                // Only the last panel may be narrow.
                let each = |unit: &mut U, idx: usize| completed(unit, panel(panels.start + idx));
                // SAFETY: the panels of these sides hold the steps; the tiles are the caller's.
                unsafe { tiles::multiply(unit, self.steps, &left, columns, update, each) };
                for b in panels.clone().map(panel).filter(|b| !is_whole(b)) {
                    let mut beside = Beside([0.0; TILED_ROWS * PANEL_COLS]);
                    let to = tile(a, b).cast();
                    let near = Tile {
                        start: beside.0.as_mut_ptr(),
                        stride: b.stride,
                    };
                    // SAFETY: as above; there is room for whole panels beside the tile.
                    unsafe {
                        if update == Update::Accumulate {
                            copy((a, b), to, near);
                        }
                        let column = std::iter::once(self.right_panel(b, near));
                        tiles::multiply(unit, self.steps, &left, column, update, |_, _| ());
                        copy((a, b), near, to);
                    }
                    completed(unit, b);
                }
                if let Some(b) = earlier {
                    done(a, b.range());
                }
            }
        }
    }

    /// Rows of the left operand as tiles read them.
    fn left_panel(&self, a: Panel, hints: Hints) -> LeftPanel {
        let rows = a.lanes;
        match self.as_they_lie {
            Some(LyingRows::Tiled(values, stride)) => {
                let values = &values[a.start * stride..];
                assert!(values.len() >= (rows - 1) * stride + 2 * self.steps);
                LeftPanel {
                    start: values.as_ptr().cast(),
                    row: stride * size_of::<bf16>(),
                    tile: ROW_BYTES,
                    rows,
                    hints,
                }
            }
            _ => {
                let packed = &self.left[a.start * self.steps..];
                assert!(packed.len() >= rows * self.steps);
                LeftPanel {
                    start: packed.as_ptr().cast(),
                    row: ROW_BYTES,
                    tile: rows * ROW_BYTES,
                    rows,
                    hints,
                }
            }
        }
    }

    /// Columns as tiles read them, with their sums.
    fn right_panel(&self, b: Panel, sums: Tile<f32>) -> RightPanel {
        let packed = &self.right[b.start * self.steps..];
        assert!(packed.len() >= b.stride * self.steps);
        RightPanel {
            start: packed.as_ptr().cast(),
            lanes: b.stride,
            out: sums.start,
            stride: sums.stride,
        }
    }
}

/// Copies the panels' own rows and columns.
///
/// # Safety
/// Both tiles have the panels' lanes as rows and columns, and nothing else uses them.
unsafe fn copy((a, b): (Panel, Panel), from: Tile<f32>, to: Tile<f32>) {
    vectorized(
        #[inline(always)]
        move || {
            for row in 0..a.lanes {
                // SAFETY: a row of each tile.
                unsafe {
                    let from = from.row(row, 0, b.lanes);
                    to.row(row, 0, b.lanes).copy_from_slice(from);
                }
            }
        },
    );
}
