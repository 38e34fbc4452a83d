//! A product of few steps, packed for a task of another product: each of its blocks goes into the
//! output with that one's, while both are in a cache.

use std::ops::Range;

use super::block::{Narrow, PANEL_COLS, PackedPart, narrow_cols, pack_left, right_cut};
use super::blocking::{MOST_COLS, most_task_rows};
use super::depth::Depth;
use super::pack::pack;
use super::panel::{TAIL, TILED_ROWS};
use super::product::LowRank;
use super::tile::Tile;
use super::tiles::Hints;
use super::{Isa, Scalar, slots};
use crate::element::Element;

/// Steps of a product of this rank.
fn steps(isa: Isa, rank: usize) -> usize {
    Depth::new(isa, rank).steps(0)
}

/// Elements of memory for a product of this rank, where tasks have at most `rows` rows and `cols`
/// columns.
pub(super) fn space(isa: Isa, rank: usize, (rows, cols): (usize, usize)) -> usize {
    let cols = cols.next_multiple_of(PANEL_COLS);
    (rows + cols) * steps(isa, rank) + 2 * TAIL + TILED_ROWS * narrow_cols(isa)
}

/// Bytes of [`space`] for each of the threads, with room to align them.
pub(super) fn bytes<S: Scalar>(isa: Isa, rank: usize, cols: usize, threads: usize) -> usize {
    let tile = (most_task_rows(isa), cols.min(MOST_COLS));
    slots::bytes::<S>(0, space(isa, rank, tile), threads)
}

/// Packs these rows and columns of the product.
pub(super) fn packed<'a, E: Element>(
    isa: Isa,
    low_rank: &LowRank<'a, E>,
    (rows, cols): (Range<usize>, Range<usize>),
    memory: &'a mut [E::Acc],
    scratch: &mut [E::Acc],
) -> Narrow<'a, E::Acc>
where
    E::Acc: Scalar,
{
    let (_, rank) = low_rank.left.size();
    let steps = steps(isa, rank);
    let (sums, packed) = memory.split_at_mut(TILED_ROWS * narrow_cols(isa));
    let (of, count) = (low_rank.left, rows.len());
    let (left, right) = packed.split_at_mut(count * steps + TAIL);
    let sizes = (rows, cols.len());
    let as_they_lie = pack_left(isa, of, sizes, 0..rank, left, scratch);
    let (of, cut, width) = (low_rank.right, right_cut::<E::Acc>(isa), cols.len());
    pack(isa, of, cols, 0..rank, cut, right, scratch);
    Narrow {
        part: PackedPart {
            isa,
            left,
            as_they_lie,
            rows: count,
            right,
            lying_cols: None,
            cols: width,
            steps,
            hints: Hints::default(),
        },
        sums: Tile {
            start: sums.as_mut_ptr(),
            stride: narrow_cols(isa),
        },
    }
}
