//! A product of few steps that is added to the output of another one, or lies there before, while
//! that is in a cache.
#![allow(unsafe_code)] // Disjoint tiles of one output on several threads.

use std::ops::Range;

use super::block::{GROUP_COLS, PackedPart, Tile, pack_left, right_cut};
use super::depth::Depth;
use super::pack::pack;
use super::panel::{Panel, TAIL, TILED_ROWS};
use super::product::{LowRank, MOST_LOW_RANK_STEPS as MOST_STEPS, Product};
use super::rounding::store_row;
use super::slots;
use super::task_space::{ROW_GAP, TaskSpace};
use super::{Scalar, Update};
use crate::element::Element;
use crate::simd::vectorized;

/// Elements from one row of sums to the next.
const STRIDE: usize = GROUP_COLS + ROW_GAP;

/// Elements of memory that [`multiply`] needs.
pub(super) const SPACE: usize = GROUP_COLS * MOST_STEPS + TAIL + TILED_ROWS * STRIDE;

/// Bytes of [`SPACE`] for each of the threads, with room to align them.
pub(super) fn bytes<S: Scalar>(threads: usize) -> usize {
    slots::bytes::<S>(0, SPACE, threads)
}

/// Computes rows and columns of the low-rank product, in `memory` of [`SPACE`] elements and a
/// task's own space.
pub(super) fn multiply<E: Element>(
    product: &Product<'_, E>,
    low_rank: &LowRank<'_, E>,
    (rows, cols): (Range<usize>, Range<usize>),
    space: &mut TaskSpace<'_, E::Acc>,
    memory: &mut [E::Acc],
) where
    E::Acc: Scalar,
{
    let isa = product.isa;
    let (_, rank) = low_rank.left.size();
    let (elements, steps) = (0..rank, Depth::new(isa, rank).steps(0));
    let left = low_rank.left;
    let as_they_lie = pack_left(
        isa,
        left,
        rows.clone(),
        elements.clone(),
        space.left,
        space.scratch,
    );
    let (right, sums) = memory.split_at_mut(GROUP_COLS * MOST_STEPS + TAIL);
    assert!(sums.len() >= TILED_ROWS * STRIDE, "sums have no room");
    let sums = Tile {
        start: sums.as_mut_ptr(),
        stride: STRIDE,
    };
    for first in cols.clone().step_by(GROUP_COLS) {
        let some = first..(first + GROUP_COLS).min(cols.end);
        let cut = right_cut::<E::Acc>(isa);
        let of = low_rank.right;
        pack(
            isa,
            of,
            some.clone(),
            elements.clone(),
            cut,
            right,
            space.scratch,
        );
        let packed = PackedPart {
            isa,
            left: space.left,
            as_they_lie,
            rows: rows.len(),
            right,
            cols: some.len(),
            steps,
        };
        let round = |a: Panel, part: Range<usize>| {
            let to = some.start + part.start..some.start + part.end;
            vectorized(
                #[inline(always)]
                || {
                    for (at, row) in a.range().enumerate() {
                        // SAFETY: complete sums; elements of this task's rows and columns.
                        let (sums, out) = unsafe {
                            (
                                sums.row(at, part.start, part.len()),
                                product.row(rows.start + row, to.clone()),
                            )
                        };
                        let first = (rows.start + row) * product.stride + to.start;
                        store_row(sums, None, low_rank.sum.part(first, part.len()), out);
                    }
                },
            );
        };
        // SAFETY: the sums have room for whole panels of a group's columns.
        let tile = |_: Panel, b: Panel| unsafe { sums.from(0, b.start) };
        // SAFETY: `isa` was checked, and the sums are this task's.
        unsafe { packed.multiply(Update::Overwrite, None, tile, round) };
    }
}
