//! The tasks of a product: columns to pack, and rows to multiply by what is packed.
#![allow(unsafe_code)] // Disjoint parts of one output and of one workspace on several threads.

use std::ops::Range;

use super::block::{EDGE, Narrow, PackedPart, group_cols, pack_left, right_cut};
use super::blocking::{Blocking, Unit, task_rows};
use super::combine::Sums;
use super::depth::{DEPTH, Depth};
use super::low_rank;
use super::pack::pack;
use super::panel::{Panel, STRIP, TAIL};
use super::pipeline::BUFFERS;
use super::product::{LowRank, LowRankTurn, Product};
use super::rounding::{Sum, add_row};
use super::task_space::{ROW_GAP, TaskSpace};
use super::tile::Tile;
use super::{Scalar, Update};
use crate::element::Element;
use crate::split::Parts;

/// What the threads of a product share.
pub(super) struct Shared<'a, E: Element>
where
    E::Acc: Scalar,
{
    pub product: &'a Product<'a, E>,
    pub depth: Depth,
    pub blocking: Blocking,
    /// `[BUFFERS]` units of packed columns, each `[parts, cols, DEPTH]`.
    pub packed: Parts<'a, E::Acc>,
    /// Sums of a band and chunk, `[rows, cols + ROW_GAP]`.
    pub kept: Parts<'a, E::Acc>,
    /// Elements of a task's memory for a product of low rank.
    pub low_rank: usize,
}

impl<E: Element> Shared<'_, E>
where
    E::Acc: Scalar,
{
    /// First element of the columns from `col` on, in part `part` of unit `idx`.
    fn place(&self, idx: usize, unit: &Unit, part: usize, col: usize) -> usize {
        let chunk = self.blocking.chunk();
        idx % BUFFERS * self.blocking.packed()
            + (part - unit.parts.start) * chunk * DEPTH
            + (col - unit.cols.start) * self.depth.steps(part)
    }

    /// Packs some columns of a part.
    pub fn pack(&self, unit_idx: usize, idx: usize, memory: &mut [E::Acc]) {
        let Product { isa, right, .. } = *self.product;
        let unit = self.blocking.unit(unit_idx);
        let Some((part, cols)) = self.blocking.pack(&unit, idx, right.summed) else {
            return;
        };
        let cut = right_cut::<E::Acc>(isa);
        let len = cut.width(cols.len()) * self.depth.steps(part);
        // SAFETY: packing tasks have different columns or parts, and none multiplies by this unit
        // before all are done.
        let out = unsafe {
            self.packed
                .part(self.place(unit_idx, &unit, part, cols.start), len)
        };
        let scratch = &mut memory[..STRIP];
        pack(isa, right, cols, self.depth.part(part), cut, out, scratch);
    }

    /// Multiplies some rows by the packed columns.
    pub fn multiply(&self, unit_idx: usize, idx: usize, memory: &mut [E::Acc]) {
        let unit = self.blocking.unit(unit_idx);
        let Some((rows, cols)) = self.blocking.task(&unit, idx) else {
            return;
        };
        let (scratch, memory) = memory.split_at_mut(STRIP);
        let (left, memory) = memory.split_at_mut(task_rows(self.product.isa) * DEPTH + TAIL);
        let (edge, memory) = memory.split_at_mut(EDGE);
        let (right, memory) = memory.split_at_mut(self.blocking.own_cols() * DEPTH);
        let (low_rank, memory) = memory.split_at_mut(self.low_rank);
        let (added, sums) = memory.split_at_mut(self.blocking.chunk());
        let mut space = TaskSpace {
            scratch,
            left,
            right,
            edge,
        };
        let product = self.product;
        let completes = unit.parts.end == self.depth.parts();
        let bias = product.bias.filter(|_| completes).map(|bias| {
            let (values, _) = bias.window(0..1, cols.clone(), added);
            &values[..cols.len()]
        });
        let narrow = product.low_rank.as_ref().filter(|_| completes).map(|of| {
            let tile = (rows.clone(), cols.clone());
            let narrow = low_rank::packed(product.isa, of, tile, low_rank, space.scratch);
            (of, narrow)
        });
        let ending = Ending {
            product,
            bias,
            narrow,
        };
        let (unit, tile) = ((unit_idx, &unit), (rows, cols));
        match product.sums {
            Sums::InOutput(update) => self.sum_in_output(unit, tile, update, &ending, &mut space),
            Sums::Beside(sum) => {
                let sums = self.sums(unit.1, &tile, sums);
                self.sum_beside(unit, tile, (sums, sum), &ending, &mut space);
            }
        }
    }

    /// Where the sums of a task are that cannot lie in the output.
    fn sums(
        &self,
        unit: &Unit,
        (rows, cols): &(Range<usize>, Range<usize>),
        own: &mut [E::Acc],
    ) -> Tile<E::Acc> {
        if !self.blocking.keeps_sums() {
            let stride = self.blocking.sum_cols() + ROW_GAP;
            assert!(
                own.len() >= task_rows(self.product.isa) * stride,
                "a task's sums have no room"
            );
            return Tile {
                start: own.as_mut_ptr(),
                stride,
            };
        }
        let stride = self.blocking.chunk() + ROW_GAP;
        let first = (rows.start - unit.rows.start) * stride + cols.start - unit.cols.start;
        Tile {
            start: self.kept.address(first),
            stride,
        }
    }

    /// Packs some rows of a part and pairs them with the packed columns.
    fn packed_part<'s>(
        &'s self,
        (unit_idx, unit, part): (usize, &Unit, usize),
        rows: &Range<usize>,
        cols: &Range<usize>,
        space: &'s mut TaskSpace<'_, E::Acc>,
    ) -> (PackedPart<'s, E::Acc>, &'s mut [E::Acc]) {
        let Product {
            isa, left, right, ..
        } = *self.product;
        let (elements, steps) = (self.depth.part(part), self.depth.steps(part));
        let as_they_lie = pack_left(isa, left, rows.clone(), elements, space.left, space.scratch);
        let right_cut = right_cut::<E::Acc>(isa);
        let right: &[E::Acc] = if self.blocking.own_cols() > 0 {
            let elements = self.depth.part(part);
            let (own, scratch) = (&mut *space.right, &mut *space.scratch);
            pack(isa, right, cols.clone(), elements, right_cut, own, scratch);
            own
        } else {
            let first = self.place(unit_idx, unit, part, cols.start);
            // SAFETY: all packing tasks of the unit are done, and the next one of its place
            // begins after this task.
            unsafe { self.packed.part(first, right_cut.width(cols.len()) * steps) }
        };
        let packed = PackedPart {
            isa,
            left: space.left,
            as_they_lie,
            rows: rows.len(),
            right,
            cols: cols.len(),
            steps,
        };
        (packed, space.edge)
    }

    /// The sums lie in the output.
    fn sum_in_output(
        &self,
        (unit_idx, unit): (usize, &Unit),
        (rows, cols): (Range<usize>, Range<usize>),
        first_update: Update,
        ending: &Ending<'_, E>,
        space: &mut TaskSpace<'_, E::Acc>,
    ) {
        let product = self.product;
        // Dtypes with equal ids are the same type.
        let out = product.block(rows.start, cols.start).cast::<E::Acc>();
        for part in unit.parts.clone() {
            let update = if part == 0 {
                first_update
            } else {
                Update::Accumulate
            };
            let (packed, edge) = self.packed_part((unit_idx, unit, part), &rows, &cols, space);
            let is_last = part + 1 == self.depth.parts();
            let done = |a: Panel, some: Range<usize>| {
                if !is_last {
                    return;
                }
                if let Some(bias) = ending.bias {
                    for row in a.range() {
                        // SAFETY: rows and columns of this task, which are complete.
                        let out = unsafe { out.row(row, some.start, some.len()) };
                        add_row(out, &bias[some.clone()]);
                    }
                }
                let (row, col) = (rows.start + a.start, cols.start + some.start);
                // SAFETY: as above.
                unsafe { ending.store_narrow((row, col), (a.lanes, some.len()), some.start) };
            };
            let narrow = ending.narrow_part().filter(|_| is_last);
            let tile = |a: Panel, b: Panel| {
                // SAFETY: the tile has this task's rows and columns, in bounds of the output, as
                // `run` was promised.
                unsafe { out.from(a.start, b.start) }
            };
            // SAFETY: as above.
            unsafe { packed.multiply(update, Some(edge), tile, narrow, done) };
        }
    }

    /// The sums lie beside the output and are rounded to it when they are complete.
    fn sum_beside(
        &self,
        (unit_idx, unit): (usize, &Unit),
        (rows, cols): (Range<usize>, Range<usize>),
        (sums, sum): (Tile<E::Acc>, Sum<'_, E>),
        ending: &Ending<'_, E>,
        space: &mut TaskSpace<'_, E::Acc>,
    ) {
        // Where one part is all, each group of columns takes the place of the one before it.
        let place = |a: Panel, col: usize| match self.depth.parts() {
            1 => (0, col % group_cols(self.product.isa)),
            _ => (a.start, col),
        };
        let tile = |a: Panel, col: usize| {
            let (row, col) = place(a, col);
            // SAFETY: the sums have these rows and columns.
            unsafe { sums.from(row, col) }
        };
        for part in unit.parts.clone() {
            let update = if part == 0 {
                Update::Overwrite
            } else {
                Update::Accumulate
            };
            let (packed, _) = self.packed_part((unit_idx, unit, part), &rows, &cols, space);
            let is_last = part + 1 == self.depth.parts();
            let done = |a: Panel, some: Range<usize>| {
                if is_last {
                    let at = (rows.start + a.start, cols.start + some.start);
                    let sums = (tile(a, some.start), sum);
                    // SAFETY: complete sums; a block of this task's rows and columns.
                    unsafe { ending.store(at, (a.lanes, some.len()), sums, some.start) };
                }
            };
            let narrow = ending.narrow_part().filter(|_| is_last);
            let to = |a: Panel, b: Panel| tile(a, b.start);
            // SAFETY: the sums have room for whole panels.
            unsafe { packed.multiply(update, None, to, narrow, done) };
        }
    }
}

/// What completes a task's sums.
struct Ending<'a, E: Element>
where
    E::Acc: Scalar,
{
    product: &'a Product<'a, E>,
    /// Added to every row before rounding.
    bias: Option<&'a [E::Acc]>,
    /// The product of low rank, packed.
    narrow: Option<(&'a LowRank<'a, E>, Narrow<'a, E::Acc>)>,
}

impl<E: Element> Ending<'_, E>
where
    E::Acc: Scalar,
{
    /// The product of low rank, packed.
    fn narrow_part(&self) -> Option<&Narrow<'_, E::Acc>> {
        self.narrow.as_ref().map(|(_, part)| part)
    }

    /// Stores a block of sums, and that of low rank, in their turns, from this row and column of
    /// the output on, which is column `col` of the task.
    ///
    /// # Safety
    /// The sums of both are complete, and nothing else uses the block.
    unsafe fn store(
        &self,
        at: (usize, usize),
        block: (usize, usize),
        (sums, sum): (Tile<E::Acc>, Sum<'_, E>),
        col: usize,
    ) {
        let bias = self.bias.map(|bias| &bias[col..col + block.1]);
        let is_before = |(of, _): &(&LowRank<'_, E>, _)| of.turn == LowRankTurn::Before;
        let low_rank_first = self.narrow.as_ref().is_some_and(is_before);
        // SAFETY: the caller's promises.
        unsafe {
            if low_rank_first {
                self.store_narrow(at, block, col);
            }
            self.product.store(at, block, (sums, sum), bias);
            if !low_rank_first {
                self.store_narrow(at, block, col);
            }
        }
    }

    /// Stores a block of sums of low rank, if there are any.
    ///
    /// # Safety
    /// As [`Ending::store`].
    unsafe fn store_narrow(&self, at: (usize, usize), block: (usize, usize), col: usize) {
        if let Some((of, narrow)) = &self.narrow {
            let sums = (narrow.sums(col), of.sum);
            // SAFETY: the caller's promises.
            unsafe { self.product.store(at, block, sums, None) };
        }
    }
}
