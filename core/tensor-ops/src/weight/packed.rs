//! A described format -> stages that make the values of some rows, each a few tensor operations:
//! index -> code -> value -> with the numbers of its blocks, of its run, or its own.

mod blocks;
mod codes;
mod hadamard;
mod interleaved;
mod outliers;
mod vectors;

use espalier_interface::format::{Format, Step, ValueSource};
use espalier_interface::{PluginError, Result};

use crate::launch::Launch;
use crate::{Binary, Tensors};
use blocks::BlockNumbers;
use codes::CodeNumbers;
use outliers::Outliers;
use vectors::Vectors;

/// The stages of a format.
pub struct Stages {
    cols: usize,
    first: First,
    then: Vec<Then>,
}

/// Makes values of codes.
enum First {
    Codes(CodeNumbers),
    Vectors(Vectors),
}

/// Makes values of values.
enum Then {
    /// A function of each value and the number of its block.
    Function(Binary, BlockNumbers),
    Outliers(Outliers),
    /// The product of each run of so many values with a Hadamard matrix.
    Hadamard(usize),
}

/// Elements of a weight in flat order.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The first.
    pub begin: usize,
    /// Number of elements.
    pub len: usize,
    /// Elements of a row of the weight.
    pub cols: usize,
}

impl Run {
    /// The elements behind the last.
    fn end(self) -> usize {
        self.begin + self.len
    }

    /// The first of the runs of `size` elements that it touches, and the number of these.
    fn touched(self, size: usize) -> [usize; 2] {
        let first = self.begin / size;
        [first, self.end().div_ceil(size) - first]
    }
}

impl Stages {
    /// The stages of `format`, which describes its decoding.
    ///
    /// # Errors
    /// `INVALID` for a format that contradicts itself, `UNSUPPORTED` for one without a description.
    pub fn new(format: &Format) -> Result<Self> {
        format.validate()?;
        let Some((source, steps)) = format.stages() else {
            return Err(PluginError::unsupported(format!(
                "quantizer `{}` describes no decoding",
                format.quantizer
            )));
        };
        let first = match &source {
            ValueSource::Table { codes, table } => First::Codes(CodeNumbers::table(codes, table)),
            ValueSource::Count { codes } => First::Codes(CodeNumbers::count(codes)),
            ValueSource::Vectors { .. } | ValueSource::SharedVectors { .. } => {
                First::Vectors(Vectors::new(source.vectors().expect("a source of vectors")))
            }
        };
        let function = |function, blocks: &_, values: &_| {
            Then::Function(function, BlockNumbers::new(*blocks, values))
        };
        let then = steps.iter().map(|step| match step {
            Step::Times { blocks, values } => function(Binary::Mul, blocks, values),
            Step::Plus { blocks, values } => function(Binary::Add, blocks, values),
            Step::Minus { blocks, values } => function(Binary::Sub, blocks, values),
            Step::Outliers {
                size,
                count,
                positions,
                values,
            } => Then::Outliers(Outliers {
                size: *size as usize,
                count: *count as usize,
                positions: *positions,
                values: *values,
            }),
            Step::Hadamard { size } => Then::Hadamard(*size as usize),
        });
        Ok(Stages {
            cols: format.shape[1] as usize,
            first,
            then: then.collect(),
        })
    }

    /// `len` rows from `begin` on, `[len, cols]` of f32. The segments' ranges begin at param
    /// `first`.
    pub fn rows<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        [begin, len]: [usize; 2],
    ) -> Result<L::Tensor> {
        let run = Run {
            begin: begin * self.cols,
            len: len * self.cols,
            cols: self.cols,
        };
        let mut values = match &self.first {
            First::Codes(codes) => codes.values(launch, first, run)?,
            First::Vectors(vectors) => vectors.values(launch, first, run)?,
        };
        for stage in &self.then {
            values = match stage {
                Then::Function(function, numbers) => {
                    numbers.applied(launch, first, *function, &values, run)?
                }
                Then::Outliers(outliers) => outliers.put(launch, first, values, run)?,
                Then::Hadamard(size) => hadamard::multiplied(launch.library, values, *size)?,
            };
        }
        launch.library.reshape(&values, &[len, self.cols])
    }
}
