//! A product's depth -> parts of it, each of which gives a partial sum.

use std::ops::Range;

use super::Isa;

/// Steps of a partial sum: elements of the depth, or pairs of bf16. The result's bits depend on it:
/// it is never tuned by machine.
pub const DEPTH: usize = 256;
/// A depth, cut into parts of [`DEPTH`] steps, each of which gives a partial sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    elements: usize,
    isa: Isa,
}

impl Depth {
    /// The depth of a product of `elements` by `isa`.
    #[inline]
    pub fn new(isa: Isa, elements: usize) -> Self {
        Depth { elements, isa }
    }

    /// The instruction set of the product.
    pub fn isa(self) -> Isa {
        self.isa
    }

    /// Elements of the whole depth.
    #[inline]
    pub fn elements(self) -> usize {
        self.elements
    }

    /// Its parts; one, without elements, where there is nothing to sum.
    #[inline]
    pub fn parts(self) -> usize {
        self.elements.div_ceil(self.most()).max(1)
    }

    /// Depths of one part and more, up to this one or `most` parts.
    pub fn shallower(self, most: usize) -> impl Iterator<Item = Depth> {
        (1..=self.parts().min(most)).map(move |parts| Depth {
            elements: self.elements.min(parts * self.most()),
            ..self
        })
    }

    /// Elements of part `idx`.
    #[inline]
    pub fn part(self, idx: usize) -> Range<usize> {
        let most = self.most();
        idx * most..((idx + 1) * most).min(self.elements)
    }

    /// Steps of part `idx`.
    #[inline]
    pub fn steps(self, idx: usize) -> usize {
        self.isa.steps(self.part(idx).len())
    }

    /// Most elements of a part.
    #[inline]
    fn most(self) -> usize {
        DEPTH * self.isa.depth_of_step()
    }
}
