//! The tasks of a product: columns to pack, and rows to multiply by what is packed.
#![allow(unsafe_code)] // Disjoint parts of one output and of one workspace on several threads.

use std::ops::Range;

use super::block::{EDGE, PackedPart, Tile, group_cols, pack_left, right_cut};
use super::blocking::{Blocking, Unit, task_rows};
use super::combine::Sums;
use super::depth::{DEPTH, Depth};
use super::low_rank;
use super::pack::pack;
use super::panel::{Panel, STRIP, TAIL};
use super::pipeline::BUFFERS;
use super::product::{LowRank, LowRankTurn, Product};
use super::rounding::{Sum, store_row};
use super::task_space::{ROW_GAP, TaskSpace};
use super::{Scalar, Update};
use crate::element::Element;
use crate::simd::vectorized;
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
        let (low_rank, memory) = memory.split_at_mut(match self.product.low_rank {
            Some(_) => low_rank::SPACE,
            None => 0,
        });
        let (added, sums) = memory.split_at_mut(self.blocking.chunk());
        let mut space = TaskSpace {
            scratch,
            left,
            right,
            edge,
        };
        let completes = unit.parts.end == self.depth.parts();
        let bias = self.product.bias.filter(|_| completes);
        let added = bias.map(|bias| {
            let (values, _) = bias.window(0..1, cols.clone(), added);
            &values[..cols.len()]
        });
        let (unit, tile) = ((unit_idx, &unit), (rows, cols));
        let both = self.product.low_rank.as_ref();
        let is_first = unit.1.parts.start == 0;
        if let Some(of) = LowRank::is_due(both, LowRankTurn::Before).filter(|_| is_first) {
            low_rank::multiply(self.product, of, tile.clone(), &mut space, low_rank);
        }
        match self.product.sums {
            Sums::InOutput(update) => {
                self.sum_in_output(unit, tile.clone(), (update, added), &mut space);
            }
            Sums::Beside(sum) => {
                let sums = self.sums(unit.1, &tile, sums);
                self.sum_beside(unit, tile.clone(), (sums, sum), added, &mut space);
            }
        }
        if let Some(of) = LowRank::is_due(both, LowRankTurn::After).filter(|_| completes) {
            low_rank::multiply(self.product, of, tile, &mut space, low_rank);
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
        (first_update, added): (Update, Option<&[E::Acc]>),
        space: &mut TaskSpace<'_, E::Acc>,
    ) {
        let product = self.product;
        let first = product
            .out
            .address(rows.start * product.stride + cols.start);
        // Dtypes with equal ids are the same type.
        let out = Tile {
            start: first.cast::<E::Acc>(),
            stride: product.stride,
        };
        for part in unit.parts.clone() {
            let update = if part == 0 {
                first_update
            } else {
                Update::Accumulate
            };
            let (packed, edge) = self.packed_part((unit_idx, unit, part), &rows, &cols, space);
            let added = added.filter(|_| part + 1 == self.depth.parts());
            let add = |a: Panel, some: Range<usize>| {
                let Some(added) = added else { return };
                for row in a.range() {
                    // SAFETY: rows and columns of this task, which are complete.
                    let out = unsafe { out.row(row, some.start, some.len()) };
                    add_row(out, &added[some.clone()]);
                }
            };
            // SAFETY: the tile has this task's rows and columns, in bounds of the output, as `run`
            // was promised.
            unsafe {
                packed.multiply(update, Some(edge), |a, b| out.from(a.start, b.start), add);
            }
        }
    }

    /// The sums lie beside the output and are rounded to it when they are complete.
    fn sum_beside(
        &self,
        (unit_idx, unit): (usize, &Unit),
        (rows, cols): (Range<usize>, Range<usize>),
        (sums, sum): (Tile<E::Acc>, Sum<'_, E>),
        added: Option<&[E::Acc]>,
        space: &mut TaskSpace<'_, E::Acc>,
    ) {
        let product = self.product;
        // Where one part is all, each group of columns takes the place of the one before it.
        let place = |a: Panel, col: usize| match self.depth.parts() {
            1 => (0, col % group_cols(product.isa)),
            _ => (a.start, col),
        };
        for part in unit.parts.clone() {
            let update = if part == 0 {
                Update::Overwrite
            } else {
                Update::Accumulate
            };
            let (packed, _) = self.packed_part((unit_idx, unit, part), &rows, &cols, space);
            let is_last = part + 1 == self.depth.parts();
            let round = |a: Panel, some: Range<usize>| {
                if !is_last {
                    return;
                }
                let added = added.map(|added| &added[some.clone()]);
                let (first, col) = place(a, some.start);
                let to = cols.start + some.start..cols.start + some.end;
                vectorized(
                    #[inline(always)]
                    || {
                        for (at, row) in (first..).zip(a.range()) {
                            // SAFETY: complete sums; elements of this task's rows and columns.
                            let (sums, out) = unsafe {
                                (
                                    sums.row(at, col, some.len()),
                                    product.row(rows.start + row, to.clone()),
                                )
                            };
                            let first = (rows.start + row) * product.stride + to.start;
                            store_row(sums, added, sum.part(first, some.len()), out);
                        }
                    },
                );
            };
            let tile = |a: Panel, b: Panel| {
                let (row, col) = place(a, b.start);
                // SAFETY: the sums have these rows and columns.
                unsafe { sums.from(row, col) }
            };
            // SAFETY: the sums have room for whole panels.
            unsafe { packed.multiply(update, None, tile, round) };
        }
    }
}

/// Adds a row of bias.
fn add_row<S: Scalar>(out: &mut [S], added: &[S]) {
    vectorized(
        #[inline(always)]
        || {
            out.iter_mut()
                .zip(added)
                .for_each(|(out, &added)| *out += added)
        },
    );
}
