//! Small operands, packed once -> products of some rows at a time, on the calling thread.
//!
//! Between two products of a chain, the rows of the first one's result are changed where they lie
//! and are the left operand of the second, without being packed: attention's softmax. Element by
//! element the sums are those of [`multiply_into`](super::multiply_into).
#![allow(unsafe_code)] // Calls of micro-kernels.

use std::ops::Range;

use super::block::{left_cut, right_cut};
use super::depth::Depth;
use super::micro::{Kernel, ROW};
use super::pack::pack;
use super::panel::{Cut, Panel, ROW_BYTES, TAIL, TILE_STEPS};
use super::source::{Operand, same};
use super::tiles::{self, Hints, LeftPanel, RightPanel};
use super::{Isa, Scalar, Update, bf16};

/// Lanes of a side are stored as a multiple of as many.
const LANES: usize = 16;
/// Rows that are made ready by [`as_steps`] start at a multiple of as many elements.
const DEPTH_OF_ROWS: usize = 32;

/// One side of products, packed for the micro-kernels of an instruction set.
pub(crate) struct Side<'a, S> {
    isa: Isa,
    cut: Cut,
    lanes: usize,
    depth: Depth,
    /// The panels of all lanes, part of the depth after part.
    values: &'a [S],
}

impl<'a, S: Scalar> Side<'a, S> {
    /// Elements that a side of `lanes` lanes over `depth` elements needs.
    pub(crate) fn room(lanes: usize, depth: usize) -> usize {
        // Pairs of bf16 fill whole tiles, in half of what f32 takes but for a shallow depth.
        let depth = depth.next_multiple_of(TILE_STEPS);
        (lanes.next_multiple_of(LANES) * depth + TAIL).next_multiple_of(LANES)
    }

    /// The left side of products.
    ///
    /// # Panics
    /// Where `memory` has less than [`Side::room`], or `scratch` less than a strip.
    pub(crate) fn left(
        isa: Isa,
        operand: Operand<'_, S>,
        memory: &'a mut [S],
        scratch: &mut [S],
    ) -> Self {
        Side::new(isa, operand, left_cut::<S>(isa), memory, scratch)
    }

    /// The right side of products.
    ///
    /// # Panics
    /// As [`Side::left`].
    pub(crate) fn right(
        isa: Isa,
        operand: Operand<'_, S>,
        memory: &'a mut [S],
        scratch: &mut [S],
    ) -> Self {
        Side::new(isa, operand, right_cut::<S>(isa), memory, scratch)
    }

    fn new(
        isa: Isa,
        operand: Operand<'_, S>,
        cut: Cut,
        memory: &'a mut [S],
        scratch: &mut [S],
    ) -> Self {
        let (lanes, elements) = operand.size();
        let depth = Depth::new(isa, elements);
        let mut start = 0;
        for part in 0..depth.parts() {
            let to = &mut memory[start..];
            pack(isa, operand, 0..lanes, depth.part(part), cut, to, scratch);
            start += cut.width(lanes) * depth.steps(part);
        }
        Side {
            isa,
            cut,
            lanes,
            depth,
            values: memory,
        }
    }

    /// Its panels.
    pub(crate) fn panels(&self) -> impl Iterator<Item = Panel> + Clone + use<'a, S> {
        let (cut, lanes) = (self.cut, self.lanes);
        (0..cut.count(lanes)).map(move |idx| cut.panel(lanes, idx))
    }

    /// `out = left right`, or `out += left right` as `update` says, of a panel of this left side
    /// and the panels of `right` that hold `cols`, as rows `stride` elements apart, of which the
    /// first element is column 0.
    ///
    /// # Panics
    /// Where the sides' depths differ, or the panels leave `out`.
    pub(crate) fn multiply(
        &self,
        a: Panel,
        right: &Side<'_, S>,
        cols: Range<usize>,
        (out, stride): (&mut [S], usize),
        update: Update,
    ) {
        assert!(
            self.isa == right.isa && self.depth.elements() == right.depth.elements(),
            "the operands' depths differ"
        );
        let to = To::new(out, a.lanes, stride);
        let mut before = 0;
        for part in 0..self.depth.parts() {
            let steps = self.depth.steps(part);
            let left = &self.values[self.cut.width(self.lanes) * before + a.start * steps..];
            assert!(left.len() >= a.lanes * steps);
            let update = match part {
                0 => update,
                _ => Update::Accumulate,
            };
            if self.isa.has_tiles() {
                let left = LeftPanel {
                    start: left.as_ptr().cast(),
                    row: ROW_BYTES,
                    tile: a.lanes * ROW_BYTES,
                    rows: a.lanes,
                    hints: Hints::default(),
                };
                let columns = right.panels_of(&cols).map(|b| RightPanel {
                    start: right.panel(before, steps, b, 0..steps).as_ptr().cast(),
                    lanes: b.stride,
                    out: to.tile(b).cast(),
                    stride,
                });
                // SAFETY: the panels hold these steps, the tiles whole panels; values of `Isa` come
                // from detection.
                unsafe { tiles::multiply_by(self.isa, steps, &left, columns, update) };
                before += steps;
                continue;
            }
            for b in right.panels_of(&cols) {
                let columns = right.panel(before, steps, b, 0..steps);
                let to = to.tile(b);
                let kernel = kernel(S::kernels(self.isa).table, self.isa, a.lanes, b);
                // SAFETY: the panels hold these steps, the tile whole panels; values of `Isa` come
                // from detection.
                unsafe {
                    kernel(
                        steps,
                        (left.as_ptr(), [1, a.lanes]),
                        columns.as_ptr(),
                        to,
                        stride,
                        update,
                    )
                };
            }
            before += steps;
        }
    }

    /// `out += rows right` over the elements `depth`, of this right side and `count` rows, [`ROW`]
    /// elements apart, that were made ready by [`as_steps`] over the same elements.
    ///
    /// The columns of `out` are those of whole panels. The end of `depth` may stand for that of its
    /// last step or tile, up to which the rows are 0.
    ///
    /// # Panics
    /// Where the depth exceeds one partial sum, or the sides or panels are too small.
    pub(crate) fn add_rows(
        &self,
        (rows, count): (&[S], usize),
        depth: Range<usize>,
        (out, stride): (&mut [S], usize),
    ) {
        let first = depth.start / self.isa.depth_of_step();
        let steps = first..first + self.isa.steps(depth.len());
        let all = self.depth.steps(0);
        assert!(
            self.depth.parts() == 1
                && steps.end <= all
                && depth.start.is_multiple_of(DEPTH_OF_ROWS),
            "rows have another depth"
        );
        assert!(
            count > 0 && rows.len() >= (count - 1) * ROW + steps.end,
            "rows end before the depth"
        );
        let to = To::new(out, count, stride);
        if self.isa.has_tiles() {
            let left = LeftPanel {
                start: rows[steps.start..].as_ptr().cast(),
                row: ROW * size_of::<S>(),
                tile: ROW_BYTES,
                rows: count,
                hints: Hints::default(),
            };
            let columns = self.panels().map(|b| RightPanel {
                start: self.panel(0, all, b, steps.clone()).as_ptr().cast(),
                lanes: b.stride,
                out: to.tile(b).cast(),
                stride,
            });
            // SAFETY: as below.
            unsafe {
                tiles::multiply_by(self.isa, steps.len(), &left, columns, Update::Accumulate)
            };
            return;
        }
        for b in self.panels() {
            let columns = self.panel(0, all, b, steps.clone());
            let to = to.tile(b);
            let kernel = kernel(S::kernels(self.isa).of_rows, self.isa, count, b);
            let left = (rows[steps.start..].as_ptr(), [ROW, 1]);
            let depth = steps.len();
            // SAFETY: the rows and the panel hold these steps, the tile whole panels; values of
            // `Isa` come from detection.
            unsafe {
                kernel(
                    depth,
                    left,
                    columns.as_ptr(),
                    to,
                    stride,
                    Update::Accumulate,
                )
            };
        }
    }

    /// `out += columns right` of this right side and `lanes` columns of `rows`, `stride` elements
    /// apart: each column is a row of the product. The first `skipped` rows are 0 there.
    ///
    /// # Panics
    /// Where products are of pairs of bf16, or the rows or `out` are too small.
    pub(crate) fn add_columns(
        &self,
        (rows, stride): (&[S], usize),
        (lanes, skipped): (usize, impl Fn(Panel) -> usize),
        (out, out_stride): (&mut [S], usize),
    ) {
        assert!(self.isa == self.isa.vectors(), "steps are packed");
        let end = (self.depth.elements() - 1) * stride + lanes;
        assert!(lanes <= stride && rows.len() >= end, "rows end too soon");
        let cut = left_cut::<S>(self.isa);
        for a in (0..cut.count(lanes)).map(|idx| cut.panel(lanes, idx)) {
            let to = To::new(&mut out[a.start * out_stride..], a.lanes, out_stride);
            let skipped = skipped(a);
            let mut before = 0;
            for part in 0..self.depth.parts() {
                let all = self.depth.steps(part);
                let steps = skipped.saturating_sub(before).min(all)..all;
                for b in self.panels().filter(|_| !steps.is_empty()) {
                    let columns = self.panel(before, all, b, steps.clone());
                    let kernel = kernel(S::kernels(self.isa).of_lying, self.isa, a.lanes, b);
                    let left = &rows[(before + steps.start) * stride + a.start..];
                    let left = (left.as_ptr(), [1, stride]);
                    let (columns, to) = (columns.as_ptr(), to.tile(b));
                    // SAFETY: the rows and the panel hold these steps, the tile whole panels;
                    // values of `Isa` come from detection.
                    unsafe {
                        kernel(
                            steps.len(),
                            left,
                            columns,
                            to,
                            out_stride,
                            Update::Accumulate,
                        );
                    }
                }
                before += all;
            }
        }
    }

    /// The panels that hold `cols`.
    fn panels_of(&self, cols: &Range<usize>) -> impl Iterator<Item = Panel> + Clone + use<'a, S> {
        let (cut, lanes, width) = (self.cut, self.lanes, self.cut.most());
        let some = cols.start / width..cols.end.div_ceil(width);
        some.map(move |idx| cut.panel(lanes, idx))
    }

    /// Steps `some` of a panel of a right side, in the part of `steps` steps after `before`.
    fn panel(&self, before: usize, steps: usize, b: Panel, some: Range<usize>) -> &[S] {
        let start = self.cut.width(self.lanes) * before + b.start * steps;
        &self.values[start + some.start * b.stride..start + some.end * b.stride]
    }
}

/// Rows that products are written to, `stride` elements apart.
#[derive(Clone, Copy)]
struct To<S> {
    start: *mut S,
    len: usize,
    rows: usize,
    stride: usize,
}

impl<S> To<S> {
    fn new(out: &mut [S], rows: usize, stride: usize) -> Self {
        To {
            start: out.as_mut_ptr(),
            len: out.len(),
            rows,
            stride,
        }
    }

    /// The tile of all rows and the columns of a panel, with room for all of it.
    fn tile(self, b: Panel) -> *mut S {
        let end = b.start + b.stride;
        assert!(
            end <= self.stride && self.len >= (self.rows - 1) * self.stride + end,
            "a tile leaves its output"
        );
        self.start.wrapping_add(b.start)
    }
}

/// The kernel of `table` for some rows and a panel of columns.
fn kernel<S: Scalar>(table: &[[Kernel<S>; 2]], isa: Isa, rows: usize, b: Panel) -> Kernel<S> {
    table[rows - 1][b.stride / S::kernels(isa).lanes - 1]
}

/// Makes `rows`, [`ROW`] elements each, what [`Side::add_rows`] reads: with instructions for bf16,
/// their elements `depth` rounded, as pairs in front of them, and with tiles zeros up to the end of
/// the last tile.
///
/// # Panics
/// Where `depth` leaves a row or, with these instructions, does not start at a multiple of 32.
pub(crate) fn as_steps<S: Scalar>(isa: Isa, rows: &mut [S], depth: Range<usize>) {
    if isa.depth_of_step() > 1 {
        let rows = S::as_f32(rows).expect("sums of bf16 are in f32");
        let (rows, _) = rows.as_chunks_mut::<ROW>();
        bf16::round_rows(isa, rows, depth);
    }
}

/// Rows that [`as_steps`] made ready from their first element on, `stride` elements apart, with
/// instructions for bf16 -> their numbers and the elements from one row to the next.
pub(crate) fn rows_of_steps<S: Scalar>(rows: &[S], stride: usize) -> (&[half::bf16], usize) {
    let rows = same::<S, f32>(rows).expect("sums of bf16 are in f32");
    // SAFETY: two numbers in the bytes of one, with less alignment; any bits are a number.
    let numbers = unsafe { std::slice::from_raw_parts(rows.as_ptr().cast(), 2 * rows.len()) };
    (numbers, 2 * stride)
}

#[cfg(test)]
mod tests;
