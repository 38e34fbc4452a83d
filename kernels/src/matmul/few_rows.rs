//! A few rows times a weight that is summed along its rows -> the product, at the speed of memory.
//!
//! Each element of the weight is used a few times only: packing it for all columns would cost more
//! than the product. Here lanes of a vector are columns of the output. A few KiB of the weight are
//! transposed (or decoded) in registers, multiplied at once and forgotten. Elements have the bits
//! of a product of many rows: the chain of steps and the order of partial sums are the same. Tiles
//! read some packed columns at a time instead (`tiled.rs`).
#![allow(unsafe_code)] // Disjoint columns of one output on several threads, and raw rows.

mod memory;
mod nibbles;
mod tiled;
#[cfg(target_arch = "x86_64")]
mod vectors;

use std::ops::Range;

use espalier_interface::{DType, Services};
use half::bf16;

pub(super) use memory::workspace_bytes;
use memory::{Memory, room_for_scales, share};

use super::bf16_model::round;
use super::blocking::LEAST_WORK;
use super::combine::Sums;
use super::depth::DEPTH;
use super::nibbles::{Nibbles, WIDE};
use super::panel::STRIP;
use super::product::Product;
use super::rounding::{Addend, Sum, add_bias};
use super::scalar::sealed::Packed as _;
use super::source::{Summed, same};
use super::tile::Tile;
use super::{Isa, Scalar, Update, each_task};
use crate::element::Element;

/// Most rows of a product in `dtype` that is computed here. More are faster in packed panels, as
/// are all products without vectors and those in f64.
fn most_rows(isa: Isa, dtype: DType) -> usize {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx512Bf16 if dtype == DType::F32 => MOST_ROWS,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 if dtype == DType::F32 => 12,
        Isa::AmxBf16 | Isa::AmxModel if dtype == DType::F32 => MOST_ROWS,
        _ => 0,
    }
}

/// The largest of these.
pub(super) const MOST_ROWS: usize = 16;
/// Most rows that are multiplied by codes in the order of tiles: with more, tiles are faster.
const MOST_ROWS_IN_ORDER_OF_TILES: usize = 4;
/// Most lanes of a vector.
const LANES: usize = 16;
/// Columns of a task: a multiple of `WIDE`.
const TASK: Range<usize> = 64..1024;

/// What a kernel multiplies by a weight: some steps of the left operand's rows.
#[derive(Clone, Copy)]
struct Part<S> {
    /// The first row's first step (a pair of bf16, or an element), beside which those of the other
    /// rows are, and numbers from one step to the next.
    left: (*const S, usize),
    /// Rows.
    rows: usize,
    /// Elements of the depth.
    depth: usize,
    /// Where the sums go: a row of lanes for each row, and elements from one to the next.
    sums: (*mut S, usize),
    /// Whether they are added to earlier parts' sums.
    update: Update,
}

/// A product of few rows.
pub(super) struct FewRows<'p, 'a, E: Element>(pub &'p Product<'a, E>)
where
    E::Acc: Scalar;

impl<E: Element> FewRows<'_, '_, E>
where
    E::Acc: Scalar,
{
    /// True where the product is computed here: few rows, and a weight that is summed along its
    /// rows.
    pub fn is_of_few_rows(&self) -> bool {
        let (rows, depth) = self.0.left.size();
        let along = (self.0.left.summed, self.0.right.summed) == (Summed::Cols, Summed::Cols);
        along && (1..=most_rows(self.0.isa, E::Acc::DTYPE)).contains(&rows) && depth > 0
    }

    /// Steps of the whole depth.
    fn steps(&self) -> usize {
        self.0.left.size().1.div_ceil(self.0.isa.depth_of_step())
    }

    /// The weight's codes, where a kernel decodes them and a task has room for their scales.
    fn nibbles(&self) -> Option<Nibbles<'_>> {
        let codes = self.0.right.source.nibbles()?;
        let (rows, depth) = self.0.left.size();
        if self.0.isa.has_tiles() && rows > MOST_ROWS_IN_ORDER_OF_TILES {
            return None;
        }
        let is_served = E::Acc::DTYPE == f32::DTYPE && codes.are_served(self.0.isa);
        (is_served && codes.room(depth) <= room_for_scales(depth)).then_some(codes)
    }

    /// Computes it.
    ///
    /// # Panics
    /// Where it is not [`FewRows::is_of_few_rows`], or the workspace is too small for one thread.
    ///
    /// # Safety
    /// The output has room for the product and is used by nothing else. The CPU can run `isa`.
    pub unsafe fn compute(&self, services: &dyn Services, workspace: &mut [u8]) {
        assert!(self.is_of_few_rows(), "a product of too many rows");
        let ((rows, depth), cols) = (self.0.left.size(), self.0.right.size().0);
        let wide = match services.threads() {
            threads if threads > 1 && rows * cols * depth >= LEAST_WORK => {
                let even = cols.div_ceil(4 * threads).next_multiple_of(WIDE);
                even.clamp(TASK.start, TASK.end)
            }
            _ => cols,
        };
        let run = |task: usize, memory: &mut [E::Acc]| {
            let some = task * wide..((task + 1) * wide).min(cols);
            // SAFETY: tasks have different columns, and each runs once.
            unsafe { self.columns(some, memory) };
        };
        let share = share(self.0.isa, depth);
        each_task(services, cols.div_ceil(wide), share, workspace, run);
    }

    /// Computes some columns.
    ///
    /// # Safety
    /// As [`FewRows::compute`]; no other thread uses these columns.
    unsafe fn columns(&self, cols: Range<usize>, memory: &mut [E::Acc]) {
        let rows = self.0.left.size().0;
        let codes = self.nibbles();
        let room = codes.map_or(0, |codes| codes.room(self.0.left.size().1));
        let mut memory = Memory::of(self.0.isa, memory, room);
        let lanes = self.lanes(&codes);
        let has_tiles = self.0.isa.has_tiles() && codes.is_none();
        if has_tiles {
            self.pack_left(&mut memory);
        } else {
            self.copy_left(&mut memory);
        }
        for first in cols.clone().step_by(WIDE) {
            let some = first..(first + WIDE).min(cols.end);
            let row = |i: usize| {
                // SAFETY: columns of the output that no other thread uses, one row at a time.
                unsafe { self.0.out.part(i * self.0.stride + some.start, some.len()) }
            };
            // An output in the dtype of sums is their first term where they are added to it.
            let (first_update, sum) = match self.0.sums {
                Sums::InOutput(update) => (update, Sum::PRODUCT),
                Sums::Beside(sum) => (Update::Overwrite, sum),
            };
            if first_update == Update::Accumulate {
                for (i, sums) in memory.sums.chunks_exact_mut(WIDE).take(rows).enumerate() {
                    sums.iter_mut()
                        .zip(row(i))
                        .for_each(|(sum, x)| *sum = x.load());
                }
            }
            if let Some(codes) = &codes {
                let scales = E::Acc::as_f32(memory.scales).expect("kernels decode to f32");
                let blocks = self.0.left.size().1 / codes.block;
                codes.gather(some.clone(), blocks, 0..blocks, scales);
            }
            if has_tiles {
                // SAFETY: the caller's promises.
                unsafe { self.multiply_by_tiles(some.clone(), first_update, &mut memory) };
            }
            let vectors = if has_tiles { 0 } else { some.len() };
            for lane in (0..vectors).step_by(lanes) {
                let lanes = some.start + lane..some.end.min(some.start + lane + lanes);
                // SAFETY: the caller's promises.
                unsafe { self.lanes_of(lanes, lane, codes, first_update, &mut memory) };
            }
            let added = self.0.bias.map(|bias| {
                let (values, _) = bias.window(0..1, some.clone(), memory.added);
                &values[..some.len()]
            });
            let sums = Tile {
                start: memory.sums.as_mut_ptr(),
                stride: WIDE,
            };
            let block = (rows, some.len());
            // SAFETY: complete sums; columns of the output that no other thread uses.
            unsafe {
                if let Some(bias) = added {
                    add_bias(sums, rows, bias);
                }
                let product = Addend { sums, sum };
                self.0.store((0, some.start), block, &product, None);
            }
        }
    }

    /// Lanes of a kernel, for codes or numbers.
    fn lanes(&self, codes: &Option<Nibbles<'_>>) -> usize {
        match (self.0.isa, codes) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, _) => 8,
            (isa, Some(codes)) => codes.lanes(isa, self.0.left.size().0),
            _ => LANES,
        }
    }

    /// Numbers of a step of one row of the left operand. In the order of tiles, the even and the
    /// odd element of a pair are multiplied apart, each beside a 0.
    fn numbers_of_step(&self) -> usize {
        if self.0.isa.has_tiles() { 2 } else { 1 }
    }

    /// Copies the left operand, in steps.
    fn copy_left(&self, memory: &mut Memory<'_, E::Acc>) {
        let ((rows, depth), per_step) = (self.0.left.size(), self.0.isa.depth_of_step());
        let source = self.0.left.source;
        for (row, k) in (0..rows).flat_map(|row| (0..depth).step_by(STRIP).map(move |k| (row, k))) {
            let some = k..(k + STRIP).min(depth);
            let place = k / per_step * self.numbers_of_step() * rows + row;
            if per_step == 1 {
                let (values, _) = source.window(row..row + 1, some.clone(), memory.scratch);
                let to = memory.left[place..].iter_mut().step_by(rows);
                to.zip(&values[..some.len()]).for_each(|(to, x)| *to = *x);
                continue;
            }
            // A pair's bits are no number: they are only moved as such.
            let left = E::Acc::as_f32(memory.left).expect("sums of bf16 are in f32");
            let mut to = left[place..].iter_mut().step_by(rows);
            let are_apart = self.numbers_of_step() == 2;
            let mut push = |even: u16, odd: u16| {
                let (even, odd) = (u32::from(even), u32::from(odd) << 16);
                let words = if are_apart {
                    [even, odd]
                } else {
                    [even | odd; 2]
                };
                for word in &words[..1 + usize::from(are_apart)] {
                    *to.next().expect("the operand has room") = f32::from_bits(*word);
                }
            };
            if let Some((values, _)) = source.bf16_window(row..row + 1, some.clone()) {
                for from in values[..some.len()].chunks(2) {
                    push(from[0].to_bits(), from.get(1).map_or(0, |x| x.to_bits()));
                }
                continue;
            }
            let (values, _) = source.window(row..row + 1, some.clone(), memory.scratch);
            let values = same::<E::Acc, f32>(values).expect("sums of bf16 are in f32");
            for from in values[..some.len()].chunks(2) {
                push(round(from[0]), from.get(1).map_or(0, |&x| round(x)));
            }
        }
    }

    /// The sums of at most a vector of columns, over the whole depth, in lanes from `lane` on.
    ///
    /// # Safety
    /// The CPU can run `isa`.
    unsafe fn lanes_of(
        &self,
        cols: Range<usize>,
        lane: usize,
        codes: Option<Nibbles<'_>>,
        first_update: Update,
        memory: &mut Memory<'_, E::Acc>,
    ) {
        let (rows, depth) = self.0.left.size();
        assert!(
            memory.left.len() >= rows * self.steps() * self.numbers_of_step()
                && lane + self.lanes(&codes) <= WIDE,
            "a product's memory is too small"
        );
        let per_step = self.0.isa.depth_of_step();
        let of_step = self.numbers_of_step() * rows;
        for k in (0..depth).step_by(DEPTH * per_step) {
            let some = k..(k + DEPTH * per_step).min(depth);
            let part = Part {
                left: (memory.left[k / per_step * of_step..].as_ptr(), of_step),
                rows,
                depth: some.len(),
                sums: (memory.sums[lane..].as_mut_ptr(), WIDE),
                update: if k == 0 {
                    first_update
                } else {
                    Update::Accumulate
                },
            };
            // SAFETY: rows of the left operand and of sums have room for the part, as was asserted.
            unsafe {
                match &codes {
                    Some(codes) => {
                        let scales = E::Acc::as_f32(memory.scales).expect("kernels decode to f32");
                        let rows = (cols.clone(), depth);
                        nibbles::multiply(self.0.isa, part.cast(), codes, rows, k, &scales[lane..]);
                    }
                    None => self.multiply_window(part, cols.clone(), some, memory.scratch),
                }
            }
        }
    }

    /// One part of a weight that is read as numbers.
    ///
    /// # Safety
    /// The CPU can run `isa`; the part's rows and sums have room for it.
    unsafe fn multiply_window(
        &self,
        part: Part<E::Acc>,
        cols: Range<usize>,
        some: Range<usize>,
        scratch: &mut [E::Acc],
    ) {
        let (source, lanes) = (self.0.right.source, cols.len());
        let fits = |len: usize, stride: usize| {
            let needed = (lanes - 1) * stride + some.len();
            assert!(len >= needed, "a window is too small");
        };
        if let Some((values, stride)) = source.bf16_window(cols.clone(), some.clone())
            && E::Acc::DTYPE == f32::DTYPE
        {
            fits(values.len(), stride);
            // SAFETY: the caller's promises; the window was checked.
            return unsafe { by_kernel::<bf16, E::Acc>(self.0.isa, part, (values, stride), lanes) };
        }
        let (values, stride) = source.window(cols, some.clone(), scratch);
        fits(values.len(), stride);
        // SAFETY: as above.
        unsafe { by_kernel::<E::Acc, E::Acc>(self.0.isa, part, (values, stride), lanes) };
    }
}

/// Multiplies a part by `lanes` rows of a window, `stride` elements apart.
///
/// # Safety
/// The CPU can run `isa`; the part's rows and sums have room for it, and so has the window.
unsafe fn by_kernel<W: Element, S: Scalar>(
    isa: Isa,
    part: Part<S>,
    (values, stride): (&[W], usize),
    lanes: usize,
) {
    #[cfg(target_arch = "x86_64")]
    if S::DTYPE == f32::DTYPE {
        let part = part.cast::<f32>();
        // SAFETY: dtypes with equal ids are the same type; else the caller's promises.
        let done = unsafe {
            match (same::<W, f32>(values), same::<W, bf16>(values)) {
                (Some(values), _) => vectors::by_f32(isa, part, (values.as_ptr(), stride), lanes),
                (_, Some(values)) => vectors::by_bf16(isa, part, (values.as_ptr(), stride), lanes),
                _ => false,
            }
        };
        if done {
            return;
        }
    }
    unreachable!("{isa:?} has no kernels for {} and {}", W::DTYPE, S::DTYPE);
}

impl<S> Part<S> {
    /// The same part where `S` is `T`.
    fn cast<T>(self) -> Part<T> {
        Part {
            left: (self.left.0.cast(), self.left.1),
            rows: self.rows,
            depth: self.depth,
            sums: (self.sums.0.cast(), self.sums.1),
            update: self.update,
        }
    }

    /// The part of some of its rows.
    ///
    /// # Safety
    /// It has them.
    unsafe fn of_rows(self, rows: Range<usize>) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Part {
                left: (self.left.0.add(rows.start), self.left.1),
                rows: rows.len(),
                sums: (self.sums.0.add(rows.start * self.sums.1), self.sums.1),
                ..self
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
