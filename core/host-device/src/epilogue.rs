//! A request of a later version of a product -> what is done with the product.

use crate::{Asked, Made};

/// `round(residual + round(added + alpha round(product)))`; without inputs `round(alpha
/// round(product))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epilogue {
    /// Factor of the product.
    pub alpha: f64,
    /// Index of the input `added`.
    pub added: Option<usize>,
    /// Index of the input `residual`.
    pub residual: Option<usize>,
}

impl Epilogue {
    /// What is added to a product that has `inputs` inputs of its own.
    pub fn after(inputs: usize, asked: &Asked<'_>) -> Self {
        let index = |index: usize| (index < asked.request.inputs.len()).then_some(index);
        Epilogue {
            alpha: asked.alpha(),
            added: index(inputs),
            residual: index(inputs + 1),
        }
    }

    /// Whether the product itself is the result.
    pub fn is_product(self) -> bool {
        self.added.is_none() && self.alpha == 1.0
    }

    /// A kernel whose output may lie in the memory of what is added.
    pub fn in_place(self, made: Made) -> Made {
        match self.added {
            Some(index) => made.in_place_of(index),
            None => made,
        }
    }
}
