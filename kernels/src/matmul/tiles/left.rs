//! Rows of the left operand -> rows of tiles: as they lie, or packed.
//!
//! A packed panel holds tile after tile of the depth, each with 64 bytes of every row. What lies
//! beyond the depth is 0, as it is in panels of columns.
#![allow(unsafe_code)] // Raw panels.

use std::ops::Range;

use half::bf16;

use crate::matmul::bf16::{Values, window};
use crate::matmul::lying_rows::LyingRows;
use crate::matmul::panel::{Cut, Panel, ROW_BYTES, STRIP, TILE_DEPTH, TILE_ROWS, TILE_STEPS};
use crate::matmul::source::{Operand, Summed};
use crate::matmul::{Isa, Scalar};

/// Bytes between rows at a multiple of which 16 of them have the same places in a first-level cache
/// of 64 sets of 12 lines.
const SAME_PLACE: usize = 2048;

/// The rows `lanes` over `depth` where tiles can be read from the operand itself.
///
/// Each row of a tile must be one cache line: reading two took three times as long. Rows that have
/// the same places in a cache drive each other out. A last tile that the depth does not fill would
/// read what follows it.
pub fn as_they_lie<'a, S: Scalar>(
    operand: Operand<'a, S>,
    lanes: Range<usize>,
    depth: Range<usize>,
) -> Option<LyingRows<'a, S>> {
    let (rows, width) = (lanes.len(), depth.len());
    if operand.summed == Summed::Rows || rows == 0 || !width.is_multiple_of(TILE_DEPTH) {
        return None;
    }
    let (values, stride) = operand.source.bf16_window(lanes, depth)?;
    let is_there = values.len() >= (rows - 1) * stride + width;
    let row_bytes = stride * size_of::<bf16>();
    let mut lines = [values.as_ptr().addr(), row_bytes].into_iter();
    let are_lines = lines.all(|at| at.is_multiple_of(ROW_BYTES));
    let are_apart = rows == 1 || !row_bytes.is_multiple_of(SAME_PLACE);
    (is_there && are_lines && are_apart).then_some(LyingRows::Tiled(values, stride))
}

/// Packs the rows `lanes` over `depth` of `operand` into `out`, panel after panel.
///
/// # Panics
/// Where `out` or `scratch` is too small, or `S` is not f32.
pub fn pack<S: Scalar>(
    isa: Isa,
    operand: Operand<'_, S>,
    lanes: Range<usize>,
    depth: Range<usize>,
    out: &mut [S],
    scratch: &mut [S],
) {
    let cut = Cut::Tiles;
    let (count, steps) = (lanes.len(), isa.steps(depth.len()));
    assert!(
        out.len() >= cut.room(count, steps),
        "a packed block is too small"
    );
    let out = S::as_f32(out).expect("sums of bf16 are in f32");
    let out = out.as_mut_ptr().cast::<u32>();
    let panels = (0..cut.count(count)).map(|idx| cut.panel(count, idx));
    // Some rows of a panel: their places in the block and in the panel.
    let groups = panels.flat_map(|panel| {
        let firsts = (0..panel.lanes).step_by(TILE_ROWS);
        firsts.map(move |first| (panel, first, (panel.lanes - first).min(TILE_ROWS)))
    });
    // The first row's first tile from element `k` of the depth on, and steps from tile to tile.
    let place = |panel: Panel, first: usize, k: usize| {
        let at = panel.start * steps + k / TILE_DEPTH * panel.lanes * TILE_STEPS;
        (at + first * TILE_STEPS, panel.lanes * TILE_STEPS)
    };
    match operand.summed {
        Summed::Cols => {
            for (panel, first, some) in groups {
                let start = lanes.start + panel.start + first;
                let values = window(operand, start..start + some, depth.clone(), scratch);
                let (at, stride) = place(panel, first, 0);
                // SAFETY: the window was checked, the block above: all tiles of these rows.
                unsafe { copy(isa, values, some, depth.len(), (out.add(at), stride)) };
            }
        }
        Summed::Rows => {
            let strip = STRIP / count / TILE_DEPTH * TILE_DEPTH;
            assert!(strip > 0, "too many rows for a strip");
            for k in (0..depth.len()).step_by(strip) {
                let elements = (depth.len() - k).min(strip);
                let start = depth.start + k;
                let values = window(operand, start..start + elements, lanes.clone(), scratch);
                for (panel, first, some) in groups.clone() {
                    let (at, stride) = place(panel, first, k);
                    let lane = panel.start + first;
                    // SAFETY: as above: these rows' tiles from `k` on.
                    unsafe {
                        let to = (out.add(at), stride);
                        turn(isa, values, lane..lane + some, elements, to);
                    }
                }
            }
        }
    }
}

/// Rows of `values`, `depth` elements each -> rows of tiles, `out_stride` words from tile to tile.
///
/// # Safety
/// The CPU can run `isa`; `values` has `lanes` rows; `out` holds their tiles.
unsafe fn copy(
    isa: Isa,
    values: Values<'_>,
    lanes: usize,
    depth: usize,
    (out, out_stride): (*mut u32, usize),
) {
    #[cfg(target_arch = "x86_64")]
    if isa.packs_by_vectors() {
        use crate::matmul::bf16::avx512::{copy_bf16, copy_f32};
        let to = (out, out_stride);
        // SAFETY: the caller's promises are the callees'.
        unsafe {
            match values {
                Values::Bf16(from, stride) => copy_bf16((from.as_ptr(), stride), lanes, depth, to),
                Values::F32(from, stride) => copy_f32((from.as_ptr(), stride), lanes, depth, to),
            }
        }
        return;
    }
    let _ = isa;
    // SAFETY: the caller's promise.
    unsafe {
        plain(
            |lane, k| values.bits(lane, k),
            lanes,
            depth,
            (out, out_stride),
        )
    };
}

/// Columns `lanes` of `values`, which has `depth` rows -> rows of tiles.
///
/// # Safety
/// As [`copy`], with `values` of `depth` rows that reach the last of `lanes`, at most 16.
unsafe fn turn(
    isa: Isa,
    values: Values<'_>,
    lanes: Range<usize>,
    depth: usize,
    (out, out_stride): (*mut u32, usize),
) {
    #[cfg(target_arch = "x86_64")]
    if isa.packs_by_vectors() {
        use crate::matmul::bf16::avx512::{turn_bf16, turn_f32};
        let (to, count) = ((out, out_stride), lanes.len());
        // SAFETY: the caller's promises are the callees'.
        unsafe {
            match values {
                Values::Bf16(from, stride) => {
                    turn_bf16((from.as_ptr().add(lanes.start), stride), count, depth, to);
                }
                Values::F32(from, stride) => {
                    turn_f32((from.as_ptr().add(lanes.start), stride), count, depth, to);
                }
            }
        }
        return;
    }
    let _ = isa;
    let bits = |lane, k| values.bits(k, lanes.start + lane);
    // SAFETY: the caller's promise.
    unsafe { plain(bits, lanes.len(), depth, (out, out_stride)) };
}

/// Rows of tiles from the bits of element `k` of each row.
///
/// # Safety
/// `out` holds the tiles.
unsafe fn plain(
    bits: impl Fn(usize, usize) -> u16,
    lanes: usize,
    depth: usize,
    (out, out_stride): (*mut u32, usize),
) {
    let bits = |lane, k| if k < depth { bits(lane, k) } else { 0 };
    for lane in 0..lanes {
        for k in (0..depth.next_multiple_of(TILE_DEPTH)).step_by(2) {
            let pair = u32::from(bits(lane, k)) | u32::from(bits(lane, k + 1)) << 16;
            let at = k / TILE_DEPTH * out_stride + lane * TILE_STEPS + k % TILE_DEPTH / 2;
            // SAFETY: a pair of a row of a tile, by the caller's promise.
            unsafe { *out.add(at) = pair };
        }
    }
}
