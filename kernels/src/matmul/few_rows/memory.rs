//! The memory of a task of few rows.

use super::{MOST_ROWS, WIDE};
use crate::element::Element;
use crate::matmul::depth::DEPTH;
use crate::matmul::panel::STRIP;
use crate::matmul::{Isa, Scalar, slot_bytes};

/// Elements that the scales and zero points of a depth's blocks may take.
pub(super) fn room_for_scales(depth: usize) -> usize {
    2 * depth
}

/// Elements of the packed columns that tiles read.
fn packed(isa: Isa) -> usize {
    if isa.has_tiles() { WIDE * DEPTH } else { 0 }
}

/// Elements that one task needs.
pub(super) fn share(isa: Isa, depth: usize) -> usize {
    let left = MOST_ROWS * isa.steps(depth);
    (MOST_ROWS + 1) * WIDE + STRIP + room_for_scales(depth) + packed(isa) + left
}

/// Bytes of workspace for products of few rows, of this depth or less, on `threads` threads.
pub(in crate::matmul) fn workspace_bytes<E: Element>(
    isa: Isa,
    threads: usize,
    depth: usize,
) -> usize {
    slot_bytes::<E::Acc>(0, share(isa, depth), threads)
}

/// The parts of a task's memory.
pub(super) struct Memory<'m, S> {
    /// `[MOST_ROWS, WIDE]`.
    pub sums: &'m mut [S],
    /// A row's worth of bias.
    pub added: &'m mut [S],
    /// A window of the weight.
    pub scratch: &'m mut [S],
    /// Scales of some columns of the weight, then their zero points.
    pub scales: &'m mut [S],
    /// Some columns of the weight, one part of the depth, where tiles read them.
    pub packed: &'m mut [S],
    /// The left operand, step after step: the rows' steps side by side.
    pub left: &'m mut [S],
}

impl<'m, S: Scalar> Memory<'m, S> {
    /// The parts of `memory` for `isa`, with room for so many scales.
    pub fn of(isa: Isa, memory: &'m mut [S], scales: usize) -> Self {
        let (sums, rest) = memory.split_at_mut(MOST_ROWS * WIDE);
        let (added, rest) = rest.split_at_mut(WIDE);
        let (scratch, rest) = rest.split_at_mut(STRIP);
        let (packed, rest) = rest.split_at_mut(packed(isa));
        let (scales, left) = rest.split_at_mut(scales);
        Memory {
            sums,
            added,
            scratch,
            scales,
            packed,
            left,
        }
    }
}
