//! Packed rows and packed columns -> a tile of their product, with instructions for tiles (AMX).
//!
//! A tile is up to 16 rows of 64 bytes. One of the left operand holds 32 elements of the depth of
//! each row, one of the right operand 16 pairs of them for 16 columns. `tdpbf16ps` adds the
//! product of such tiles to a tile of sums. For each sum, the even elements are one chain of fused
//! multiply-adds from 0 and the odd ones another; their sum is added once. Sums are stored and read
//! again on the way through the depth, which changes no bit. So a sum has one order of `k`, and a
//! depth is filled up with zeros to whole tiles.
//!
//! Panels are multiplied [`PASS`] tiles of the depth at a time: those of the rows stay in the
//! first-level cache while columns come from the second.
//!
//! Panels of columns are those of other instructions for bf16 (`bf16.rs`): a tile of the right
//! operand is 16 rows of such a panel. Rows of the left operand are read as they lie where
//! alignment allows, else they are packed (`left.rs`). The instructions are behind [`TileUnit`]:
//! the processor's (`amx.rs`), or their model in plain Rust (`model.rs`). What is needed later is
//! asked for meanwhile (`hints.rs`).
#![allow(unsafe_code)] // Raw panels.

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
mod config;
mod hints;
pub(super) mod left;
mod model;
#[cfg(target_arch = "x86_64")]
mod permission;

use std::ops::Range;

use config::TileShapes;
pub(super) use hints::{Hints, Lines};
pub(super) use model::TileModel;
#[cfg(target_arch = "x86_64")]
pub(super) use permission::{is_permitted, is_there};

use super::panel::{ROW_BYTES, TILE_ROWS, TILE_STEPS, TILED_ROWS};
use super::{Isa, Update};

/// Tiles of the depth after which sums are stored: 8 gave the highest rate of 4 to 32.
const PASS: usize = 8;

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

    /// Asks for a line at any address, for the second-level cache.
    fn ask_for(&self, line: *const u8);

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
    /// What is asked for meanwhile.
    pub hints: Hints,
}

/// A panel of columns in pairs, 16 or 32 lanes, and where its product goes.
#[derive(Clone, Copy)]
pub(super) struct RightPanel {
    /// The first step.
    pub start: *const f32,
    pub lanes: usize,
    /// Sums, rows x `lanes`.
    pub out: *mut f32,
    /// Elements from one row of sums to the next.
    pub stride: usize,
}

/// [`multiply`] by the unit of `isa`.
///
/// # Safety
/// As there. The CPU can run `isa`, which has tiles, and the thread has no unit.
pub(super) unsafe fn multiply_by(
    isa: Isa,
    steps: usize,
    left: &LeftPanel,
    columns: impl Iterator<Item = RightPanel> + Clone,
    update: Update,
) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::AmxBf16 => {
            // SAFETY: the caller's promises.
            unsafe {
                multiply(
                    &mut amx::Amx::new(),
                    steps,
                    left,
                    columns,
                    update,
                    |_, _| (),
                )
            };
        }
        Isa::AmxModel => {
            // SAFETY: the caller's promises.
            unsafe {
                multiply(
                    &mut TileModel::new(),
                    steps,
                    left,
                    columns,
                    update,
                    |_, _| (),
                )
            };
        }
        other => unreachable!("{other:?} has no tiles"),
    }
}

/// Computes `out (=|+=) left right` over `steps` steps, whole tiles, for each panel of columns, and
/// calls `done(unit, idx)` when the sums of panel `idx` are complete and in the first-level cache.
///
/// # Safety
/// The panels hold the steps; each `out` has room and is used by nothing else. `done` leaves the
/// unit's shapes as they are.
#[inline]
pub(super) unsafe fn multiply<U: TileUnit>(
    unit: &mut U,
    steps: usize,
    left: &LeftPanel,
    columns: impl Iterator<Item = RightPanel> + Clone,
    update: Update,
    mut done: impl FnMut(&mut U, usize),
) {
    debug_assert!(steps.is_multiple_of(TILE_STEPS) && (1..=TILED_ROWS).contains(&left.rows));
    unit.configure(left.rows);
    let tiles = steps / TILE_STEPS;
    let blocks = columns.clone().count() * tiles.div_ceil(PASS).max(1);
    let mut before = 0;
    for first in (0..tiles.max(1)).step_by(PASS) {
        let some = first..(first + PASS).min(tiles);
        let update = match first {
            0 => update,
            _ => Update::Accumulate,
        };
        let is_last = some.end == tiles;
        for (idx, panel) in columns.clone().enumerate() {
            let block = match (left.rows > TILE_ROWS, panel.lanes > TILE_STEPS) {
                (false, false) => block::<_, 1, 1>,
                (false, true) => block::<_, 1, 2>,
                (true, false) => block::<_, 2, 1>,
                (true, true) => block::<_, 2, 2>,
            };
            let mut asked = left
                .hints
                .of_block((before, blocks), is_last.then_some(idx));
            // SAFETY: the caller's promises; the unit was configured for these rows.
            unsafe { block(unit, some.clone(), left, &panel, update, &mut asked) };
            before += 1;
            if is_last {
                done(unit, idx);
            }
        }
    }
}

/// [`multiply`], for `R` x `C` tiles of sums over some tiles of the depth. Lines of `asked` are
/// asked for meanwhile.
///
/// # Safety
/// As there; the unit is configured for the panel's rows, which make `R` tiles.
#[inline]
unsafe fn block<U: TileUnit, const R: usize, const C: usize>(
    unit: &mut U,
    tiles: Range<usize>,
    left: &LeftPanel,
    right: &RightPanel,
    update: Update,
    asked: &mut [Option<Lines>; 4],
) {
    let right_stride = C * ROW_BYTES;
    let (out, stride) = (right.out.cast::<u8>(), 4 * right.stride);
    let (beside, lower) = (ROW_BYTES, TILE_ROWS * stride);
    // SAFETY: tiles of the panels and of the output, which the caller promises.
    unsafe {
        match update {
            Update::Overwrite => {
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
            }
            Update::Accumulate => {
                unit.load::<0>(out, stride);
                if C == 2 {
                    unit.load::<1>(out.add(beside), stride);
                }
                if R == 2 {
                    unit.load::<2>(out.add(lower), stride);
                }
                if R == 2 && C == 2 {
                    unit.load::<3>(out.add(lower + beside), stride);
                }
            }
        }
        let mut upper = left.start.add(tiles.start * left.tile);
        let start = right.start.cast::<u8>();
        let mut right = start.add(tiles.start * TILE_STEPS * right_stride);
        for _ in tiles {
            asked.iter_mut().flatten().for_each(|lines| lines.ask(unit));
            unit.load::<4>(upper, left.row);
            unit.load::<6>(right, right_stride);
            if C == 2 {
                unit.load::<7>(right.add(ROW_BYTES), right_stride);
            }
            if R == 2 {
                unit.load::<5>(upper.add(TILE_ROWS * left.row), left.row);
            }
            unit.dot::<0, 4, 6>();
            if C == 2 {
                unit.dot::<1, 4, 7>();
            }
            if R == 2 {
                unit.dot::<2, 5, 6>();
            }
            if R == 2 && C == 2 {
                unit.dot::<3, 5, 7>();
            }
            upper = upper.wrapping_add(left.tile);
            right = right.wrapping_add(TILE_STEPS * right_stride);
        }
        unit.store::<0>(out, stride);
        if C == 2 {
            unit.store::<1>(out.add(beside), stride);
        }
        if R == 2 {
            unit.store::<2>(out.add(lower), stride);
        }
        if R == 2 && C == 2 {
            unit.store::<3>(out.add(lower + beside), stride);
        }
    }
}

#[cfg(test)]
mod tests;
