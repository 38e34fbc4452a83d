//! Two matrices of any dtypes, packed ones too -> their product.
//!
//! `out[i, j] (=|+=) sum over k of left[i, k] right[k, j] (+ bias[j])`, where either side may be
//! read transposed. Operands are widened (or decoded) panel by panel to the scalar of the product,
//! f32 or f64. The sum is rounded once to the output's dtype. With instructions for bf16
//! ([`Isa::Avx512Bf16`]), products of bf16 take both operands in bf16: what is stored or decoded in
//! another dtype is rounded once. Sums stay in f32.
//!
//! Element `(i, j)` is the sum, in order, of one partial sum per [`DEPTH`] steps, each a chain of
//! fused multiply-adds in order of `k`; with instructions for bf16, steps are pairs of `k`. Its
//! bits depend on row `i` and column `j` only: not on the other rows, the tiles, the number of
//! threads, addresses, caches or the width of vectors. (The `gemm` crate, the reference of speed,
//! chooses its partial sums by the machine's caches and allocates in every call.)
#![allow(unsafe_code)] // Disjoint tiles of one output on several threads.

mod bf16;
mod bf16_model;
mod block;
mod detect;
mod isa;
mod micro;
mod pack;
mod panel;
mod rounding;
mod scalar;
mod slots;
mod source;
#[cfg(test)]
pub(crate) mod threads;
mod transpose;

use espalier_interface::Services;

pub use block::DEPTH;
use block::{Tile, multiply};
pub(crate) use block::{multiply_into, space};
pub use isa::Isa;
pub use micro::Update;
use rounding::store_row;
pub use scalar::Scalar;
pub(crate) use slots::{bytes as slot_bytes, each as each_task};
pub use source::{Dense, Operand, Rows, Summed};

use crate::element::Element;
use crate::simd::vectorized;

/// Most rows of a tile that one task computes.
const TILE_ROWS: usize = 512;
/// Tiles are not cut below this many rows or columns to get more tasks.
const TILE_LEAST: usize = 64;
/// Multiplications under which waking threads costs more than it saves.
const LEAST_WORK: usize = 1 << 18;

/// The output of a product: `[rows, cols]`, `stride` elements from one row to the next.
pub struct Output<'a, E: Element>
where
    E::Acc: Scalar,
{
    /// The values.
    pub values: &'a mut [E],
    /// Elements from one row to the next, at least the columns.
    pub stride: usize,
    /// Whether values are overwritten or accumulated; accumulation is in the output's dtype, after
    /// rounding.
    pub update: Update,
    /// Added to every row before rounding, `[1, cols]` in any dtype.
    pub bias: Option<&'a dyn Rows<E::Acc>>,
}

/// Bytes of workspace that [`matmul`] needs on `threads` threads for products of any size.
pub fn workspace_bytes<E: Element>(threads: usize) -> usize
where
    E::Acc: Scalar,
{
    slot_bytes::<E::Acc>(share::<E>(), threads)
}

/// Elements of the scalar that one task needs: those of `multiply`, and the tile and a row of bias
/// where the output cannot hold partial sums.
fn share<E: Element>() -> usize
where
    E::Acc: Scalar,
{
    let tile = if E::DTYPE == E::Acc::DTYPE {
        0
    } else {
        (TILE_ROWS + 1) * block::columns::<E::Acc>()
    };
    space::<E::Acc>() + tile
}

/// `out (=|+=) left right (+ bias)`, with `left` `[rows, depth]` and `right` `[depth, cols]` as
/// operands, by the kernels of `isa`.
///
/// With less than [`workspace_bytes`] for all threads, fewer threads are used. Operands are read in
/// bf16 only where the output is bf16, too.
///
/// # Panics
/// Where shapes disagree, the workspace is too small for one thread, or this CPU lacks `isa`.
pub fn matmul<E: Element>(
    isa: Isa,
    services: &dyn Services,
    left: Operand<'_, E::Acc>,
    right: Operand<'_, E::Acc>,
    out: Output<'_, E>,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let isa = isa.serving(E::DTYPE);
    matmul_of(isa, services, left, right, out, workspace);
}

/// [`matmul`] where both operands are stored in the dtype that `isa` was asked to serve
/// ([`Isa::serving`]), which may differ from the output's.
pub(crate) fn matmul_of<E: Element>(
    isa: Isa,
    services: &dyn Services,
    left: Operand<'_, E::Acc>,
    right: Operand<'_, E::Acc>,
    out: Output<'_, E>,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let isa = isa.checked();
    let ((rows, depth), (cols, right_depth)) = (left.size(), right.size());
    assert_eq!(depth, right_depth, "the operands' depths differ");
    if rows == 0 || cols == 0 {
        return;
    }
    let Output {
        values,
        stride,
        update,
        bias,
    } = out;
    assert!(stride >= cols, "the output's rows overlap");
    assert!(
        values.len() >= (rows - 1) * stride + cols,
        "the output is too small"
    );
    assert!(
        bias.is_none_or(|bias| bias.size() == (1, cols)),
        "the bias is not as long as a row"
    );
    let (tile_rows, tile_cols) = tiles::<E::Acc>(rows, cols, depth, services.threads());
    let across = cols.div_ceil(tile_cols);
    let (len, start) = (values.len(), Start(values.as_mut_ptr()));
    let run = |task: usize, memory: &mut [E::Acc]| {
        let (row, col) = (task / across * tile_rows, task % across * tile_cols);
        let range = (
            row..(row + tile_rows).min(rows),
            col..(col + tile_cols).min(cols),
        );
        let target = Target {
            start: &start,
            len,
            stride,
            update,
        };
        // SAFETY: tasks have different tiles, and each runs once.
        unsafe { tile::<E>(isa, (left, right), range, target, bias, memory) };
    };
    let count = rows.div_ceil(tile_rows) * across;
    each_task(services, count, share::<E>(), workspace, run);
}

/// The first element of an output that threads write disjoint tiles of.
struct Start<E>(*mut E);

// SAFETY: only `tile` goes through the pointer, and its callers promise disjoint tiles.
unsafe impl<E: Send> Sync for Start<E> {}

/// The whole output, of which a task writes a tile.
struct Target<'a, E> {
    start: &'a Start<E>,
    len: usize,
    stride: usize,
    update: Update,
}

/// Computes one tile.
///
/// # Safety
/// No other thread uses the tile's elements.
unsafe fn tile<E: Element>(
    isa: Isa,
    operands: (Operand<'_, E::Acc>, Operand<'_, E::Acc>),
    (rows, cols): (std::ops::Range<usize>, std::ops::Range<usize>),
    target: Target<'_, E>,
    bias: Option<&dyn Rows<E::Acc>>,
    memory: &mut [E::Acc],
) where
    E::Acc: Scalar,
{
    let (space, sums) = memory.split_at_mut(space::<E::Acc>());
    let (count, width, bias_cols) = (rows.len(), cols.len(), cols.clone());
    let first = rows.start * target.stride + cols.start;
    assert!(
        first + (count - 1) * target.stride + width <= target.len,
        "a tile leaves its output"
    );
    let row = |i: usize| {
        // SAFETY: in bounds by the assertion; rows of a tile do not overlap each other, nor, by the
        // caller's promise, another task's.
        unsafe {
            std::slice::from_raw_parts_mut(target.start.0.add(first + i * target.stride), width)
        }
    };
    if E::DTYPE == E::Acc::DTYPE {
        // The output holds partial sums itself: dtypes with equal ids are the same type.
        // SAFETY: in bounds by the assertion.
        let start = unsafe { target.start.0.add(first).cast() };
        let tile = Tile {
            start,
            stride: target.stride,
            passing: false,
        };
        let to = (tile, target.update);
        // SAFETY: by the caller's promise no other thread uses the tile's elements, and elements
        // between its rows are not accessed.
        unsafe { multiply(isa, operands, (rows, cols), to, space, |_, _| ()) };
        let Some(bias) = bias else { return };
        let (bias, _) = bias.window(0..1, bias_cols, space);
        for i in 0..count {
            for (out, &bias) in row(i).iter_mut().zip(bias) {
                *out = E::store(out.load() + bias);
            }
        }
        return;
    }
    let (added, sums) = sums.split_at_mut(block::columns::<E::Acc>());
    assert!(
        sums.len() >= count * width && added.len() >= width,
        "a tile's sums have no room"
    );
    let added = bias.map(|bias| {
        let (values, _) = bias.window(0..1, bias_cols, added);
        &values[..width]
    });
    let sums = sums.as_mut_ptr();
    let passing = block::is_one_sum(isa, operands.0.size().1);
    let tile = Tile {
        start: sums,
        stride: width,
        passing,
    };
    let round = |rows: std::ops::Range<usize>, cols: std::ops::Range<usize>| {
        let added = added.map(|added| &added[cols.clone()]);
        let place = if passing { 0 } else { rows.start };
        vectorized(
            #[inline(always)]
            || {
                for (at, i) in (place..).zip(rows) {
                    // SAFETY: complete sums of the tile, which `multiply` does not access during
                    // the call.
                    let sums = unsafe {
                        std::slice::from_raw_parts_mut(
                            sums.add(at * width + cols.start),
                            cols.len(),
                        )
                    };
                    store_row(sums, added, target.update, &mut row(i)[cols.clone()]);
                }
            },
        )
    };
    let to = (tile, Update::Overwrite);
    // SAFETY: `sums` holds `count` rows of `width`.
    unsafe { multiply(isa, operands, (rows, cols), to, space, round) };
}

/// Rows and columns of a task's tile: a few tasks per thread, so that none waits long for the last.
///
/// Only speed depends on it: an element's bits do not depend on its tile.
fn tiles<S: Scalar>(rows: usize, cols: usize, depth: usize, threads: usize) -> (usize, usize) {
    let mut most = (TILE_ROWS, block::columns::<S>());
    let even = |len: usize, most: usize| {
        len.div_ceil(len.div_ceil(most))
            .next_multiple_of(32)
            .min(most)
    };
    loop {
        let tile = (even(rows, most.0), even(cols, most.1));
        let tasks = rows.div_ceil(tile.0) * cols.div_ceil(tile.1);
        if threads < 2 || tasks >= 3 * threads || rows * cols * depth < LEAST_WORK {
            return tile;
        }
        // Narrow tiles pack the left operand again, short ones the right one, which may be a
        // decode.
        if tile.1 > 2 * TILE_LEAST {
            most.1 = (tile.1 / 2).next_multiple_of(32);
        } else if tile.0 > 2 * TILE_LEAST {
            most.0 = (tile.0 / 2).next_multiple_of(32);
        } else {
            return tile;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
