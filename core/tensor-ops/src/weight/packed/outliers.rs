//! Entries of a position and a number -> values in which the numbers stand at these positions.

use espalier_interface::{DType, Result};

use super::Run;
use crate::launch::Launch;
use crate::{Compare, Tensors};

/// Elements that are stored as they are, some in each block.
pub struct Outliers {
    /// Elements of a block, in flat order.
    pub size: usize,
    /// Entries of a block.
    pub count: usize,
    /// Segment of the positions within their blocks, one per entry.
    pub positions: usize,
    /// Segment of the numbers, one per entry.
    pub values: usize,
}

impl Outliers {
    /// The values of a run, `[len]` of f32, with its outliers. Of several at one position the last
    /// counts.
    pub fn put<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        values: L::Tensor,
        run: Run,
    ) -> Result<L::Tensor> {
        let library = launch.library;
        let [block, blocks] = run.touched(self.size);
        let before = run.begin - block * self.size;
        let whole = whole_blocks(library, values, [before, blocks * self.size])?;
        let mut values = library.reshape(&whole, &[blocks, self.size])?;
        let entries = |segment: usize| {
            let segment = launch.param(first + segment);
            let entries = segment.narrowed(0, block * self.count, blocks * self.count);
            launch.float(&entries.reshaped(&[blocks, self.count]))
        };
        let (positions, numbers) = (entries(self.positions)?, entries(self.values)?);
        let columns: Vec<f32> = (0..self.size).map(|column| column as f32).collect();
        let columns = library.floats(&columns, &[1, self.size])?;
        for entry in 0..self.count {
            let position = library.narrow(&positions, 1, entry, 1)?;
            let there = library.compare(Compare::Equal, &columns, &position)?;
            let number = library.narrow(&numbers, 1, entry, 1)?;
            values = library.choose(&there, &number, &values)?;
        }
        let flat = library.reshape(&values, &[blocks * self.size])?;
        library.narrow(&flat, 0, before, run.len)
    }
}

/// `x` with zeros around, so that `before` are before it and all are `len`.
fn whole_blocks<L: Tensors>(
    library: &L,
    x: L::Tensor,
    [before, len]: [usize; 2],
) -> Result<L::Tensor> {
    let behind = len - before - library.shape(&x)[0];
    let mut parts = Vec::new();
    if before > 0 {
        parts.push(library.full(0.0, &[before], DType::F32)?);
    }
    parts.push(x);
    if behind > 0 {
        parts.push(library.full(0.0, &[behind], DType::F32)?);
    }
    library.concat(&parts, 0)
}
