//! A window of an operand -> panels of pairs in the order in which micro-kernels read them.
#![allow(unsafe_code)] // Raw panels.

use std::ops::Range;

use half::bf16;

#[cfg(target_arch = "x86_64")]
use super::{avx512, codes};
use crate::matmul::bf16_model::round;
use crate::matmul::panel::{Cut, Panel, STRIP};
use crate::matmul::source::{Operand, Summed, same};
use crate::matmul::{Isa, Scalar};

/// Lanes of a vector of pairs.
const LANES: usize = 16;

/// The values of a window and the elements from one row to the next.
#[derive(Clone, Copy)]
pub enum Values<'a> {
    Bf16(&'a [bf16], usize),
    F32(&'a [f32], usize),
}

/// The window `rows` x `cols` of an operand's matrix: as it is where it holds bf16, else in f32.
pub fn window<'a, S: Scalar>(
    operand: Operand<'a, S>,
    rows: Range<usize>,
    cols: Range<usize>,
    scratch: &'a mut [S],
) -> Values<'a> {
    let (count, width) = (rows.len(), cols.len());
    let fits = |len: usize, stride: usize| {
        assert!(
            count == 0 || len >= (count - 1) * stride + width,
            "a window is too small"
        );
    };
    if let Some((values, stride)) = operand.source.bf16_window(rows.clone(), cols.clone()) {
        fits(values.len(), stride);
        return Values::Bf16(values, stride);
    }
    let (values, stride) = operand.source.window(rows, cols, scratch);
    fits(values.len(), stride);
    let values = same::<S, f32>(values).expect("sums of bf16 are in f32");
    Values::F32(values, stride)
}

/// Packs `lanes` x `depth` of `operand` into `out`, panel after panel, in pairs.
///
/// Lanes of a panel after its last hold any values; they never reach an output.
///
/// # Panics
/// Where `out` or `scratch` is too small, or `S` is not f32.
pub fn pack<S: Scalar>(
    isa: Isa,
    operand: Operand<'_, S>,
    lanes: Range<usize>,
    depth: Range<usize>,
    cut: Cut,
    out: &mut [S],
    scratch: &mut [S],
) {
    let (count, steps) = (lanes.len(), isa.steps(depth.len()));
    assert!(
        out.len() >= cut.room(count, steps),
        "a packed block is too small"
    );
    let out = S::as_f32(out).expect("sums of bf16 are in f32");
    let out = out.as_mut_ptr().cast::<u32>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the block was just checked; values of `Isa` come from detection.
    let is_done = unsafe {
        let some = (lanes.clone(), depth.clone());
        codes::pack(isa, operand, some, (cut, steps), out, scratch)
    };
    #[cfg(not(target_arch = "x86_64"))]
    let is_done = false;
    if !is_done {
        // SAFETY: the block was just checked.
        unsafe {
            pack_values(
                isa,
                operand,
                (lanes, depth.clone()),
                (cut, steps),
                out,
                scratch,
            )
        };
    }
    let pairs = depth.len().div_ceil(2);
    for panel in (0..cut.count(count)).map(|idx| cut.panel(count, idx)) {
        // SAFETY: this panel's steps beyond the depth, which tiles take as 0.
        unsafe {
            let to = out.add(panel.start * steps + pairs * panel.stride);
            to.write_bytes(0, (steps - pairs) * panel.stride);
        }
    }
}

/// [`pack`] by the operand's values, without the zeros after the depth.
///
/// # Safety
/// `out` has room for the panels.
unsafe fn pack_values<S: Scalar>(
    isa: Isa,
    operand: Operand<'_, S>,
    (lanes, depth): (Range<usize>, Range<usize>),
    (cut, steps): (Cut, usize),
    out: *mut u32,
    scratch: &mut [S],
) {
    let count = lanes.len();
    match operand.summed {
        Summed::Cols => {
            for idx in 0..cut.count(count) {
                let panel = cut.panel(count, idx);
                for first in (0..panel.lanes).step_by(LANES) {
                    let some = (panel.lanes - first).min(LANES);
                    let start = lanes.start + panel.start + first;
                    let values = window(operand, start..start + some, depth.clone(), scratch);
                    // SAFETY: the window was checked, the block above. This panel starts at
                    // `panel.start * steps`, and the elements after it are packed later or spare.
                    unsafe {
                        let to = out.add(panel.start * steps + first);
                        transpose(isa, values, some, depth.len(), (to, panel.stride));
                    }
                }
            }
        }
        Summed::Rows => {
            let strip = (STRIP / count).max(2) / 2 * 2;
            for first in (0..depth.len()).step_by(strip) {
                let some = (depth.len() - first).min(strip);
                let start = depth.start + first;
                let values = window(operand, start..start + some, lanes.clone(), scratch);
                for idx in 0..cut.count(count) {
                    let panel = cut.panel(count, idx);
                    // SAFETY: the window was checked, the block above: the panel's pairs from
                    // `first / 2` on are written, `room` ends at its last.
                    unsafe {
                        let to = out.add(panel.start * steps + first / 2 * panel.stride);
                        let room = (steps - first / 2) * panel.stride;
                        interleave(isa, values, some, panel, (to, room));
                    }
                }
            }
        }
    }
}

/// `out[p * out_stride + lane]` = elements `2p` and `2p + 1` of row `lane`.
///
/// Pairs are written in order of `p`, each as a whole vector from `out` on. So the elements after
/// the last lane of the last pair are overwritten too.
///
/// # Safety
/// The CPU can run `isa`; `values` has `lanes` rows, at most 16, of `depth`; `out` holds their
/// pairs and 16 elements more.
pub unsafe fn transpose(
    isa: Isa,
    values: Values<'_>,
    lanes: usize,
    depth: usize,
    (out, out_stride): (*mut u32, usize),
) {
    let to = (out, out_stride);
    #[cfg(target_arch = "x86_64")]
    if isa.packs_by_vectors() {
        // SAFETY: the caller's promises are the callees'.
        unsafe {
            match values {
                Values::Bf16(from, stride) => {
                    avx512::transpose_bf16((from.as_ptr(), stride), lanes, depth, to);
                }
                Values::F32(from, stride) => {
                    avx512::transpose_f32((from.as_ptr(), stride), lanes, depth, to);
                }
            }
        }
        return;
    }
    debug_assert!(matches!(isa, Isa::Bf16Model | Isa::AmxModel));
    for lane in 0..lanes {
        for k in (0..depth).step_by(2) {
            let odd = if k + 1 < depth {
                values.bits(lane, k + 1)
            } else {
                0
            };
            // SAFETY: an element of the panel, by the caller's promise.
            unsafe { *out.add(k / 2 * out_stride + lane) = pair(values.bits(lane, k), odd) };
        }
    }
}

/// `out[p * panel.stride + lane]` = lane `lane` of the panel in rows `2p` and `2p + 1`, of `depth`
/// rows.
///
/// # Safety
/// The CPU can run `isa`; `values` has `depth` rows that reach the panel's last lane; `out` holds
/// `room` elements, at least those of the pairs.
unsafe fn interleave(
    isa: Isa,
    values: Values<'_>,
    depth: usize,
    panel: Panel,
    (out, room): (*mut u32, usize),
) {
    #[cfg(target_arch = "x86_64")]
    if isa.packs_by_vectors() {
        // SAFETY: the caller's promises are the callees'.
        unsafe {
            match values {
                Values::Bf16(from, stride) => {
                    let from = (from.as_ptr().add(panel.start), stride);
                    avx512::interleave_bf16(from, panel.lanes, depth, (out, panel.stride), room);
                }
                Values::F32(from, stride) => {
                    let from = (from.as_ptr().add(panel.start), stride);
                    avx512::interleave_f32(from, panel.lanes, depth, (out, panel.stride), room);
                }
            }
        }
        return;
    }
    debug_assert!(matches!(isa, Isa::Bf16Model | Isa::AmxModel) && depth <= 2 * room);
    for k in (0..depth).step_by(2) {
        for lane in 0..panel.lanes {
            let at = panel.start + lane;
            let odd = if k + 1 < depth {
                values.bits(k + 1, at)
            } else {
                0
            };
            // SAFETY: an element of the panel, by the caller's promise.
            unsafe { *out.add(k / 2 * panel.stride + lane) = pair(values.bits(k, at), odd) };
        }
    }
}

/// Rounds the elements `depth` of rows and stores them as pairs from element `depth.start / 2` on.
/// The last pair of an odd number has 0 as its second element; with tiles, zeros follow up to the
/// end of the last one.
///
/// # Panics
/// Where `depth` leaves the rows, or does not start, as rows end, at a multiple of 32.
pub fn round_rows<const N: usize>(isa: Isa, rows: &mut [[f32; N]], depth: Range<usize>) {
    assert!(
        depth.end <= N && N.is_multiple_of(32) && depth.start.is_multiple_of(32),
        "rows have no such pairs"
    );
    round_pairs(isa, rows, depth.clone());
    let steps = isa.steps(depth.len());
    let pairs = depth.len().div_ceil(2);
    if pairs < steps {
        let rest = depth.start / 2 + pairs..depth.start / 2 + steps;
        rows.iter_mut().for_each(|row| row[rest.clone()].fill(0.0));
    }
}

/// [`round_rows`] without what follows the pairs.
fn round_pairs<const N: usize>(isa: Isa, rows: &mut [[f32; N]], depth: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    if isa.packs_by_vectors() {
        let starts = (depth.start, depth.start / 2);
        // SAFETY: whole vectors of the rows, which was just checked.
        unsafe { avx512::round_rows(rows, starts, depth.len()) };
        return;
    }
    debug_assert!(matches!(isa, Isa::Bf16Model | Isa::AmxModel));
    for row in rows {
        for k in depth.clone().step_by(2) {
            let odd = if k + 1 < depth.end {
                round(row[k + 1])
            } else {
                0
            };
            row[k / 2] = f32::from_bits(pair(round(row[k]), odd));
        }
    }
}

fn pair(even: u16, odd: u16) -> u32 {
    u32::from(even) | u32::from(odd) << 16
}

impl Values<'_> {
    /// The bits of an element, rounded to bf16.
    pub fn bits(self, row: usize, col: usize) -> u16 {
        match self {
            Values::Bf16(values, stride) => values[row * stride + col].to_bits(),
            Values::F32(values, stride) => round(values[row * stride + col]),
        }
    }
}
