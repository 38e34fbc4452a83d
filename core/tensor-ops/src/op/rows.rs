//! Expressions that compute each element, or each row, by itself.

use espalier_interface::Result;

use super::Kernel;
use crate::launch::Launch;
use crate::{Memory, Tensors};

/// Outputs whose elements depend on the elements of all inputs at the same place. `function` gets
/// the inputs in f32 and returns the outputs.
pub fn each<L: Tensors, const I: usize, const O: usize>(
    function: impl Fn(&L, [L::Tensor; I]) -> Result<[L::Tensor; O]> + Send + Sync + 'static,
) -> Kernel<L> {
    Kernel::new(move |launch| {
        let flat = |memory: &Memory| memory.reshaped(&[memory.elements()]);
        let inputs: [Memory; I] = std::array::from_fn(|index| flat(launch.input(index)));
        let outputs: [Memory; O] = std::array::from_fn(|index| flat(launch.output(index)));
        launch.parts(outputs[0].elements(), 1, |begin, len| {
            let mut read = Vec::with_capacity(I);
            for input in &inputs {
                read.push(launch.float(&input.narrowed(0, begin, len))?);
            }
            let read = read.try_into().ok().expect("as many as there are");
            let written = function(launch.library, read)?;
            for (x, output) in written.iter().zip(&outputs) {
                launch.write(x, &output.narrowed(0, begin, len))?;
            }
            Ok(())
        })
    })
}

/// A part of a launch's rows.
#[derive(Clone, Copy)]
pub struct Part<'a, 'b, L> {
    /// The launch.
    pub launch: &'a Launch<'b, L>,
    begin: usize,
    /// Number of rows.
    pub len: usize,
}

impl<L: Tensors> Part<'_, '_, L> {
    /// The part of an operand with a row for each token.
    pub fn of(&self, memory: &Memory) -> Memory {
        memory.narrowed(0, self.begin, self.len)
    }

    /// The part of input `index` in f32.
    pub fn float(&self, index: usize) -> Result<L::Tensor> {
        self.launch.float(&self.of(self.launch.input(index)))
    }

    /// The part of input `index`, `[T]` i32, as a column `[T, 1]` of i64.
    pub fn column(&self, index: usize) -> Result<L::Tensor> {
        let column = self.launch.index(&self.of(self.launch.input(index)))?;
        self.launch.library.reshape(&column, &[self.len, 1])
    }

    /// Writes the part of output `index`.
    pub fn write(&self, x: &L::Tensor, index: usize) -> Result<()> {
        let memory = self.of(self.launch.output(index));
        let x = self.launch.library.reshape(x, memory.shape())?;
        self.launch.write(&x, &memory)
    }
}

/// An expression over the rows of parts, each as wide as the widest operand of the launch.
pub fn rows<L: Tensors>(
    body: impl Fn(Part<'_, '_, L>) -> Result<()> + Send + Sync + 'static,
) -> Kernel<L> {
    Kernel::new(move |launch| {
        if launch.tokens == 0 {
            return Ok(());
        }
        let inputs = (0..launch.inputs()).map(|index| launch.input(index));
        let outputs = (0..launch.outputs()).map(|index| launch.output(index));
        let tokens = launch.tokens;
        let per_token = inputs.chain(outputs).filter(|one| one.shape()[0] == tokens);
        let width = per_token.map(|one| one.elements() / tokens).max();
        launch.parts(tokens, width.unwrap_or(1), |begin, len| {
            body(Part { launch, begin, len })
        })
    })
}
