//! The tasks of a product: columns to pack, and rows to multiply by what is packed.
#![allow(unsafe_code)] // Disjoint parts of one output and of one workspace on several threads.

mod ending;

use std::ops::Range;

use half::bf16;

use self::ending::Ending;
use super::block::{EDGE, PackedPart, group_cols, pack_left, right_cut};
use super::blocking::{Blocking, Unit};
use super::combine::Sums;
use super::depth::{DEPTH, Depth};
use super::low_rank;
use super::lying_cols::LyingCols;
use super::pack::pack;
use super::panel::{Panel, ROW_BYTES, STRIP, TAIL};
use super::pipeline::BUFFERS;
use super::product::Product;
use super::rounding::{Addend, Sum, add_bias};
use super::source::Summed;
use super::task_space::{ROW_GAP, TaskSpace};
use super::tile::Tile;
use super::tiles::{Hints, Lines};
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
    pub threads: usize,
}

/// Some rows and columns of a unit: those of a task that multiplies.
struct Portion {
    unit_idx: usize,
    unit: Unit,
    /// The task's among those of the unit.
    idx: usize,
    rows: Range<usize>,
    cols: Range<usize>,
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
        let Some(portion) = self.portion(unit_idx, idx) else {
            return;
        };
        let Portion { rows, cols, .. } = &portion;
        let (scratch, memory) = memory.split_at_mut(STRIP);
        let (left, memory) = memory.split_at_mut(self.blocking.most_rows() * DEPTH + TAIL);
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
        let completes = portion.unit.parts.end == self.depth.parts();
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
        match product.sums {
            Sums::InOutput(update) => self.sum_in_output(&portion, update, &ending, &mut space),
            Sums::Beside(sum) => {
                let sums = self.sums(&portion, sums);
                self.sum_beside(&portion, (sums, sum), &ending, &mut space);
            }
        }
    }

    /// The rows and columns of multiplying task `idx` of a unit, if it has any.
    fn portion(&self, unit_idx: usize, idx: usize) -> Option<Portion> {
        let unit = self.blocking.unit(unit_idx);
        let (rows, cols) = self.blocking.task(&unit, idx)?;
        Some(Portion {
            unit_idx,
            unit,
            idx,
            rows,
            cols,
        })
    }

    /// The rows that are read after a part of a task, with all lines of each: those of the next
    /// part, or of the task that the thread will take next if all are equally fast.
    fn coming(&self, portion: &Portion, part: usize) -> Option<Lines> {
        let Product { isa, left, .. } = *self.product;
        if !isa.has_tiles() || left.summed == Summed::Rows {
            return None;
        }
        let (rows, part) = if part + 1 < portion.unit.parts.end {
            (portion.rows.clone(), part + 1)
        } else {
            let (later, tasks) = (portion.idx + self.threads, self.blocking.tasks());
            let unit_idx = portion.unit_idx + later / tasks;
            let is_there = unit_idx < self.blocking.units();
            let next = is_there.then(|| self.portion(unit_idx, later % tasks))??;
            (next.rows, next.unit.parts.start)
        };
        let depth = self.depth.part(part);
        let lines = (depth.len() * size_of::<bf16>()).div_ceil(ROW_BYTES);
        let (values, stride) = left.source.bf16_window(rows, depth)?;
        Some(Lines::new(values.as_ptr(), stride).wide(lines))
    }

    /// Where the sums of a task are that cannot lie in the output.
    fn sums(&self, portion: &Portion, own: &mut [E::Acc]) -> Tile<E::Acc> {
        let Portion {
            unit, rows, cols, ..
        } = portion;
        if !self.blocking.keeps_sums() {
            let stride = self.blocking.sum_cols() + ROW_GAP;
            assert!(
                own.len() >= rows.len() * stride,
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
        portion: &Portion,
        part: usize,
        space: &'s mut TaskSpace<'_, E::Acc>,
    ) -> (PackedPart<'s, E::Acc>, &'s mut [E::Acc]) {
        let Product {
            isa, left, right, ..
        } = *self.product;
        let Portion {
            unit_idx,
            unit,
            rows,
            cols,
            ..
        } = portion;
        let (elements, steps) = (self.depth.part(part), self.depth.steps(part));
        let sizes = (rows.clone(), cols.len());
        let as_they_lie = pack_left(isa, left, sizes, elements, space.left, space.scratch);
        let right_cut = right_cut::<E::Acc>(isa);
        let mut lying_cols = None;
        let right: &[E::Acc] = if self.blocking.own_cols() > 0 {
            let elements = self.depth.part(part);
            if as_they_lie.is_none() {
                let sizes = (rows.len(), cols.clone());
                lying_cols = LyingCols::of(isa, right, sizes, elements.clone());
            }
            let (own, scratch) = (&mut *space.right, &mut *space.scratch);
            if lying_cols.is_none() {
                pack(isa, right, cols.clone(), elements, right_cut, own, scratch);
            }
            own
        } else {
            let first = self.place(*unit_idx, unit, part, cols.start);
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
            lying_cols,
            cols: cols.len(),
            steps,
            hints: Hints {
                coming: self.coming(portion, part),
                ..Hints::default()
            },
        };
        (packed, space.edge)
    }

    /// The sums lie in the output.
    fn sum_in_output(
        &self,
        portion: &Portion,
        first_update: Update,
        ending: &Ending<'_, E>,
        space: &mut TaskSpace<'_, E::Acc>,
    ) {
        let product = self.product;
        let Portion {
            unit, rows, cols, ..
        } = portion;
        // Dtypes with equal ids are the same type.
        let out = product.block(rows.start, cols.start).cast::<E::Acc>();
        for part in unit.parts.clone() {
            let update = if part == 0 {
                first_update
            } else {
                Update::Accumulate
            };
            let (packed, edge) = self.packed_part(portion, part, space);
            let is_last = part + 1 == self.depth.parts();
            let done = |a: Panel, some: Range<usize>| {
                if !is_last {
                    return;
                }
                let (row, col) = (rows.start + a.start, cols.start + some.start);
                // SAFETY: rows and columns of this task, which are complete.
                unsafe {
                    if let Some(bias) = ending.bias {
                        let sums = out.from(a.start, some.start);
                        add_bias(sums, a.lanes, &bias[some.clone()]);
                    }
                    if let Some((narrow, _)) = ending.narrow_sums(some.start) {
                        product.store((row, col), (a.lanes, some.len()), &narrow, None);
                    }
                }
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
        portion: &Portion,
        (sums, sum): (Tile<E::Acc>, Sum<'_, E>),
        ending: &Ending<'_, E>,
        space: &mut TaskSpace<'_, E::Acc>,
    ) {
        let Portion {
            unit, rows, cols, ..
        } = portion;
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
            let (mut packed, _) = self.packed_part(portion, part, space);
            let is_last = part + 1 == self.depth.parts();
            if is_last {
                packed.hints.ending = ending.lines((rows.start, cols.start), sum);
            }
            let done = |a: Panel, some: Range<usize>| {
                if is_last {
                    let at = (rows.start + a.start, cols.start + some.start);
                    let sums = tile(a, some.start);
                    let addend = Addend { sums, sum };
                    // SAFETY: complete sums; a block of this task's rows and columns.
                    unsafe { ending.store(at, (a.lanes, some.len()), &addend, some.start) };
                }
            };
            let narrow = ending.narrow_part().filter(|_| is_last);
            let to = |a: Panel, b: Panel| tile(a, b.start);
            // SAFETY: the sums have room for whole panels.
            unsafe { packed.multiply(update, None, to, narrow, done) };
        }
    }
}
