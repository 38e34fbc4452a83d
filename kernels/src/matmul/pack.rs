//! A window of an operand -> panels in the order in which micro-kernels read them.
#![allow(unsafe_code)] // Raw panels.

use std::ops::Range;

use super::panel::{Cut, Panel, STRIP};
use super::source::{Operand, Summed};
use super::{Isa, Scalar, bf16, tiles};
use crate::element::{Element, convert_real};
use crate::simd::{prefetch_line, vectorized};

/// Packs `lanes` x `depth` of `operand` into `out`, panel after panel.
///
/// Lanes of a panel after its last hold any values; they never reach an output.
///
/// # Panics
/// Where `out` or `scratch` is too small.
pub(super) fn pack<S: Scalar>(
    isa: Isa,
    operand: Operand<'_, S>,
    lanes: Range<usize>,
    depth: Range<usize>,
    cut: Cut,
    out: &mut [S],
    scratch: &mut [S],
) {
    if let Cut::Tiles = cut {
        return tiles::left::pack(isa, operand, lanes, depth, out, scratch);
    }
    if isa.depth_of_step() > 1 {
        return bf16::pack(isa, operand, lanes, depth, cut, out, scratch);
    }
    let (count, steps) = (lanes.len(), depth.len());
    assert!(
        out.len() >= cut.room(count, steps),
        "a packed block is too small"
    );
    match operand.summed {
        Summed::Cols => {
            let width = S::kernels(isa).lanes;
            for idx in 0..cut.count(count) {
                let panel = cut.panel(count, idx);
                for first in (0..panel.lanes).step_by(width) {
                    let some = (panel.lanes - first).min(width);
                    let start = lanes.start + panel.start + first;
                    let rows = start..start + some;
                    let fits = |len: usize, stride: usize| {
                        let needed = (some - 1) * stride + steps;
                        assert!(len >= needed, "a window is too small");
                    };
                    // SAFETY: in the block, which was just checked. This panel starts at
                    // `panel.start * steps`, and the elements after it are packed later or spare.
                    let to = unsafe { out.as_mut_ptr().add(panel.start * steps + first) };
                    let to = (to, panel.stride);
                    if let Some((values, stride)) =
                        operand.source.bf16_window(rows.clone(), depth.clone())
                    {
                        fits(values.len(), stride);
                        // SAFETY: the window was just checked.
                        unsafe {
                            S::transpose_bf16(isa, (values.as_ptr(), stride), some, steps, to);
                        }
                        continue;
                    }
                    let (values, stride) = operand.source.window(rows, depth.clone(), scratch);
                    fits(values.len(), stride);
                    // SAFETY: the window was just checked.
                    unsafe { S::transpose(isa, (values.as_ptr(), stride), some, steps, to) };
                }
            }
        }
        Summed::Rows => {
            let strip = (STRIP / count).max(1);
            for first in (0..steps).step_by(strip) {
                let some = (steps - first).min(strip);
                let start = depth.start + first;
                let rows = start..start + some;
                let place = (first..first + some, steps, count);
                match operand.source.bf16_window(rows.clone(), lanes.clone()) {
                    Some(values) => copy_strip(values, place, cut, out),
                    None => {
                        let values = operand.source.window(rows, lanes.clone(), scratch);
                        copy_strip(values, place, cut, out);
                    }
                }
            }
        }
    }
}

/// Copies `some` of the `steps` steps of `count` lanes, out of rows `stride` apart, into their
/// panels.
fn copy_strip<S: Scalar, E: Element>(
    (values, stride): (&[E], usize),
    (some, steps, count): (Range<usize>, usize, usize),
    cut: Cut,
    out: &mut [S],
) {
    vectorized(
        #[inline(always)]
        move || {
            let panels = cut.count(count);
            for idx in 0..panels {
                let panel = cut.panel(count, idx);
                let to = panel.start * steps + some.start * panel.stride;
                let end = panel.start * steps + steps * panel.stride;
                let from = &values[panel.start..];
                // The next panel's, and after the last the first one's of the steps that follow.
                let ahead = if idx + 1 == panels {
                    some.len() * stride - panel.start
                } else {
                    panel.lanes
                };
                let to = &mut out[to..end];
                copy_steps((from, stride), ahead, some.len(), panel, to);
            }
        },
    );
}

/// Copies `steps` steps of a panel out of rows `stride` apart, and asks for what lies `ahead`.
#[inline(always)]
fn copy_steps<S: Scalar, E: Element>(
    (from, stride): (&[E], usize),
    ahead: usize,
    steps: usize,
    panel: Panel,
    out: &mut [S],
) {
    // Whole vectors where there is room in the panel: its later steps are packed later. Each width
    // has a loop of its own: one loop would call the library's copy for every step.
    let strides = [stride, panel.stride];
    let copied = match panel.lanes {
        ..=8 => copy_vectors::<S, E, 8>((from, ahead), strides, steps, out),
        9..=16 => copy_vectors::<S, E, 16>((from, ahead), strides, steps, out),
        32 => copy_vectors::<S, E, 32>((from, ahead), strides, steps, out),
        _ => 0,
    };
    for k in copied..steps {
        let (from, out) = (&from[k * stride..], &mut out[k * panel.stride..]);
        for (out, x) in out[..panel.lanes].iter_mut().zip(&from[..panel.lanes]) {
            *out = convert_real(x.load());
        }
    }
}

/// Copies `WIDTH` elements of each of `steps` steps, `strides` elements apart in `from` and `out`,
/// and asks for those `ahead`; returns the steps before the first without room for them.
#[inline(always)]
fn copy_vectors<S: Scalar, E: Element, const WIDTH: usize>(
    (from, ahead): (&[E], usize),
    strides: [usize; 2],
    steps: usize,
    out: &mut [S],
) -> usize {
    let with_room = |len: usize, stride: usize| match len.checked_sub(WIDTH) {
        Some(rest) => (rest / stride + 1).min(steps),
        None => 0,
    };
    let steps = with_room(from.len(), strides[0]).min(with_room(out.len(), strides[1]));
    for k in 0..steps {
        let from = &from[k * strides[0]..];
        prefetch_line(from.as_ptr().wrapping_add(ahead));
        prefetch_line(from.as_ptr().wrapping_add(ahead + WIDTH - 1));
        let from = from.first_chunk::<WIDTH>();
        let out = out[k * strides[1]..].first_chunk_mut::<WIDTH>();
        *out.expect("there is room") = from.expect("there is room").map(
            #[inline(always)]
            |x| convert_real(x.load()),
        );
    }
    steps
}
