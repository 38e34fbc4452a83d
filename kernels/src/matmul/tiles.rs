//! Packed rows and packed columns -> a tile of their product, with instructions for tiles (AMX).
//!
//! A tile is up to 16 rows of 64 bytes. One of the left operand holds 32 elements of the depth of
//! each row, one of the right operand 16 pairs of them for 16 columns. `tdpbf16ps` adds the
//! product of such tiles to a tile of sums. For each sum, the even elements are one chain of fused
//! multiply-adds from 0 and the odd ones another; their sum is added once. So a partial sum has a
//! fixed order of `k`, and a depth is filled up with zeros to whole tiles.
//!
//! Panels of columns are those of other instructions for bf16 (`bf16.rs`): a tile of the right
//! operand is 16 rows of such a panel. Rows of the left operand are read as they lie where
//! alignment allows, else they are packed (`left.rs`). The instructions are behind [`TileUnit`]:
//! the processor's (`amx.rs`), or their model in plain Rust (`model.rs`).
#![allow(unsafe_code)] // Raw panels.

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
mod config;
pub(super) mod left;
mod model;
#[cfg(target_arch = "x86_64")]
mod permission;

use config::TileShapes;
pub(super) use model::TileModel;
#[cfg(target_arch = "x86_64")]
pub(super) use permission::{is_permitted, is_there};

use super::panel::{ROW_BYTES, TILE_ROWS, TILE_STEPS, TILED_ROWS};

/// Eight tiles and what is done with them. Tiles 0 to 3 are sums (of the first and second columns
/// of the first rows, then of the second rows), 4 and 5 rows of the left operand, 6 and 7 columns
/// of the right one.
pub(super) trait TileUnit {
    /// Shapes the tiles for panels of this many rows, 1 to [`TILED_ROWS`]. They then hold zeros.
    fn configure(&mut self, rows: usize);

    /// Sets tile `T` to 0.
    ///
    /// # Safety
    /// The unit is configured, and tile `T` has a row.
    unsafe fn zero<const T: usize>(&mut self);

    /// Reads the rows of tile `T`, `stride` bytes apart.
    ///
    /// # Safety
    /// As [`TileUnit::zero`]; there are as many rows of 64 bytes.
    unsafe fn load<const T: usize>(&mut self, from: *const u8, stride: usize);

    /// Writes the rows of tile `T`, `stride` bytes apart.
    ///
    /// # Safety
    /// As [`TileUnit::load`]; no one else uses them.
    unsafe fn store<const T: usize>(&mut self, to: *mut u8, stride: usize);

    /// Adds the product of tiles `A` and `B` to tile `C`.
    ///
    /// # Safety
    /// As [`TileUnit::zero`] for all three.
    unsafe fn dot<const C: usize, const A: usize, const B: usize>(&mut self);
}

/// The rows of a panel of the left operand.
#[derive(Clone, Copy)]
pub(super) struct LeftPanel {
    /// The first element.
    pub start: *const u8,
    /// Bytes from one row to the next.
    pub row: usize,
    /// Bytes from one tile of the depth to the next.
    pub tile: usize,
    /// Number of rows, 1 to [`TILED_ROWS`].
    pub rows: usize,
}

/// Computes `out = left right` over `steps` steps, whole tiles, into `rows` x `lanes` of f32 that
/// are `stride` elements apart. `right` is a panel of pairs with this many lanes, 16 or 32.
///
/// # Safety
/// The panels hold the steps; `out` has room and is used by nothing else.
#[inline]
pub(super) unsafe fn multiply(
    unit: &mut impl TileUnit,
    steps: usize,
    left: LeftPanel,
    (right, lanes): (*const f32, usize),
    (out, stride): (*mut f32, usize),
) {
    debug_assert!(steps.is_multiple_of(TILE_STEPS) && (1..=TILED_ROWS).contains(&left.rows));
    unit.configure(left.rows);
    let block = match (left.rows > TILE_ROWS, lanes > TILE_STEPS) {
        (false, false) => block::<_, 1, 1>,
        (false, true) => block::<_, 1, 2>,
        (true, false) => block::<_, 2, 1>,
        (true, true) => block::<_, 2, 2>,
    };
    let tiles = steps / TILE_STEPS;
    // SAFETY: the caller's promises; the unit was configured for these rows.
    unsafe { block(unit, tiles, left, right.cast(), (out.cast(), 4 * stride)) };
}

/// [`multiply`], for `R` x `C` tiles of sums.
///
/// # Safety
/// As there; the unit is configured for the panel's rows, which make `R` tiles.
#[inline]
unsafe fn block<U: TileUnit, const R: usize, const C: usize>(
    unit: &mut U,
    tiles: usize,
    left: LeftPanel,
    mut right: *const u8,
    (out, stride): (*mut u8, usize),
) {
    let (mut upper, right_stride) = (left.start, C * ROW_BYTES);
    // SAFETY: tiles of the panels and of the output, which the caller promises.
    unsafe {
        unit.zero::<0>();
        if C == 2 {
            unit.zero::<1>();
        }
        if R == 2 {
            unit.zero::<2>();
        }
        if R == 2 && C == 2 {
            unit.zero::<3>();
        }
        for _ in 0..tiles {
            unit.load::<6>(right, right_stride);
            unit.load::<4>(upper, left.row);
            unit.dot::<0, 4, 6>();
            if R == 2 {
                unit.load::<5>(upper.add(TILE_ROWS * left.row), left.row);
                unit.dot::<2, 5, 6>();
            }
            if C == 2 {
                unit.load::<7>(right.add(ROW_BYTES), right_stride);
                unit.dot::<1, 4, 7>();
            }
            if R == 2 && C == 2 {
                unit.dot::<3, 5, 7>();
            }
            upper = upper.wrapping_add(left.tile);
            right = right.wrapping_add(TILE_STEPS * right_stride);
        }
        unit.store::<0>(out, stride);
        if C == 2 {
            unit.store::<1>(out.add(ROW_BYTES), stride);
        }
        if R == 2 {
            unit.store::<2>(out.add(TILE_ROWS * stride), stride);
        }
        if R == 2 && C == 2 {
            unit.store::<3>(out.add(TILE_ROWS * stride + ROW_BYTES), stride);
        }
    }
}

#[cfg(test)]
mod tests;
