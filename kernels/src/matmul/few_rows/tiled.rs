//! A few rows times some columns of a weight, by tiles: a part of these columns is packed and used
//! at once, while it is in the first-level cache.
#![allow(unsafe_code)] // Raw sums.

use std::ops::Range;

use super::memory::Memory;
use super::{FewRows, WIDE};
use crate::element::Element;
use crate::matmul::block::{PackedPart, right_cut};
use crate::matmul::depth::{DEPTH, Depth};
use crate::matmul::pack::pack;
use crate::matmul::panel::Cut;
use crate::matmul::tile::Tile;
use crate::matmul::tiles::Hints;
use crate::matmul::{Scalar, Update};

impl<E: Element> FewRows<'_, '_, E>
where
    E::Acc: Scalar,
{
    /// Packs the left operand, part after part.
    pub(super) fn pack_left(&self, memory: &mut Memory<'_, E::Acc>) {
        let (isa, left) = (self.0.isa, self.0.left);
        let (rows, depth) = left.size();
        let depth = Depth::new(isa, depth);
        for part in 0..depth.parts() {
            let to = &mut memory.left[rows * DEPTH * part..];
            let elements = depth.part(part);
            pack(isa, left, 0..rows, elements, Cut::Tiles, to, memory.scratch);
        }
    }

    /// The sums of at most [`WIDE`] columns over the whole depth.
    ///
    /// # Safety
    /// The CPU can run `isa`, which has tiles, and the left operand is packed.
    pub(super) unsafe fn multiply_by_tiles(
        &self,
        cols: Range<usize>,
        first_update: Update,
        memory: &mut Memory<'_, E::Acc>,
    ) {
        let (isa, right, (rows, depth)) = (self.0.isa, self.0.right, self.0.left.size());
        let (cut, depth) = (right_cut::<E::Acc>(isa), Depth::new(isa, depth));
        assert!(
            memory.sums.len() >= rows * WIDE && cols.len() <= WIDE,
            "a product's memory is too small"
        );
        let sums = Tile {
            start: memory.sums.as_mut_ptr(),
            stride: WIDE,
        };
        for part in 0..depth.parts() {
            let (elements, to) = (depth.part(part), &mut *memory.packed);
            pack(isa, right, cols.clone(), elements, cut, to, memory.scratch);
            let product = PackedPart {
                isa,
                left: &memory.left[rows * DEPTH * part..],
                as_they_lie: None,
                rows,
                right: memory.packed,
                lying_cols: None,
                cols: cols.len(),
                steps: depth.steps(part),
                hints: Hints::default(),
            };
            let update = if part == 0 {
                first_update
            } else {
                Update::Accumulate
            };
            // SAFETY: the sums have room for whole panels of these rows; else the caller's
            // promises.
            unsafe { product.multiply(update, None, |_, _| sums, None, |_, _| ()) };
        }
    }
}
