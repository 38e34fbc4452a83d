//! Packed rows and packed columns -> a tile of the output, by a unit for tiles.
#![allow(unsafe_code)] // Calls of micro-kernels.

use std::ops::Range;

use half::bf16;

use super::{PANEL_COLS, PackedPart, Tile};
use crate::element::Element;
use crate::matmul::panel::{Panel, ROW_BYTES, TILED_ROWS};
use crate::matmul::tiles::{self, LeftPanel, TileUnit};
use crate::matmul::{Scalar, Update};
use crate::simd::vectorized;

/// Sums of two panels.
#[repr(align(64))]
struct Beside([f32; TILED_ROWS * PANEL_COLS]);

impl<S: Scalar> PackedPart<'_, S> {
    /// [`PackedPart::multiply`] by a unit for tiles. Sums that are added, or that have no room for
    /// a whole panel, are written beside the output first.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn multiply_by_tiles(
        &self,
        unit: &mut impl TileUnit,
        (update, has_room): (Update, bool),
        tile: impl Fn(Panel, Panel) -> Tile<S>,
        done: impl FnMut(Panel, Range<usize>),
    ) {
        assert!(S::DTYPE == f32::DTYPE, "sums of bf16 are in f32");
        let mut beside = Beside([0.0; TILED_ROWS * PANEL_COLS]);
        let micro = |a: Panel, b: Panel| {
            let (left, right) = (self.left_panel(a), &self.right[b.start * self.steps..]);
            assert!(right.len() >= b.stride * self.steps);
            let right = (right.as_ptr().cast::<f32>(), b.stride);
            let to = tile(a, b);
            let to = Tile {
                start: to.start.cast::<f32>(),
                stride: to.stride,
            };
            let is_direct = update == Update::Overwrite && (has_room || b.lanes == b.stride);
            let out = if is_direct {
                (to.start, to.stride)
            } else {
                (beside.0.as_mut_ptr(), b.stride)
            };
            // SAFETY: the panels of these sides hold the steps; the tile is the caller's.
            unsafe { tiles::multiply(unit, self.steps, left, right, out) };
            if !is_direct {
                // SAFETY: as above.
                unsafe { add_rows(&beside.0, (a, b), to, update) };
            }
        };
        self.each_tile(micro, done);
    }

    /// Rows of the left operand as tiles read them.
    fn left_panel(&self, a: Panel) -> LeftPanel {
        let rows = a.lanes;
        match self.as_they_lie {
            Some((values, stride)) => {
                let values = &values[a.start * stride..];
                assert!(values.len() >= (rows - 1) * stride + 2 * self.steps);
                LeftPanel {
                    start: values.as_ptr().cast(),
                    row: stride * size_of::<bf16>(),
                    tile: ROW_BYTES,
                    rows,
                }
            }
            None => {
                let packed = &self.left[a.start * self.steps..];
                assert!(packed.len() >= rows * self.steps);
                LeftPanel {
                    start: packed.as_ptr().cast(),
                    row: ROW_BYTES,
                    tile: rows * ROW_BYTES,
                    rows,
                }
            }
        }
    }
}

/// Writes or adds the sums of whole panels' tile, those of the panels' own rows and columns.
///
/// # Safety
/// The tile has the panels' lanes as rows and columns.
unsafe fn add_rows(sums: &[f32], (a, b): (Panel, Panel), tile: Tile<f32>, update: Update) {
    vectorized(
        #[inline(always)]
        move || {
            for (row, sums) in sums.chunks_exact(b.stride).enumerate().take(a.lanes) {
                // SAFETY: a row of the tile.
                let out = unsafe { tile.row(row, 0, b.lanes) };
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = match update {
                        Update::Overwrite => *sum,
                        Update::Accumulate => *out + *sum,
                    };
                }
            }
        },
    );
}
