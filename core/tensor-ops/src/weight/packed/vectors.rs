//! Codes of vectors -> the sums of the vectors that they stand for, of one codebook for each stage.

use espalier_interface::format;
use espalier_interface::{DType, Result};

use super::Run;
use super::codes::CodeNumbers;
use crate::Tensors;
use crate::launch::Launch;

/// The stages of a vector quantization.
pub struct Vectors {
    stages: Vec<Stage>,
    /// Elements of a vector.
    len: usize,
}

struct Stage {
    codes: CodeNumbers,
    /// `[entries, len]`.
    codebook: Codebook,
    entries: usize,
}

/// The vectors of a stage.
enum Codebook {
    /// In a segment, from a number on.
    Segment { segment: usize, begin: usize },
    /// In the description.
    Shared(Vec<f32>),
}

impl Vectors {
    /// The stages of a description.
    pub fn new(vectors: format::Vectors<'_>) -> Self {
        let stages = vectors.stages().map(|(codes, codebook)| Stage {
            codes: CodeNumbers::count(codes),
            codebook: match codebook {
                format::Codebook::Segment { segment, first } => Codebook::Segment {
                    segment,
                    begin: first as usize,
                },
                format::Codebook::Shared(values) => Codebook::Shared(values.to_vec()),
            },
            entries: 1 << codes.bits,
        });
        Vectors {
            stages: stages.collect(),
            len: vectors.len as usize,
        }
    }

    /// The sums of a run, `[len]` of f32.
    pub fn values<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        run: Run,
    ) -> Result<L::Tensor> {
        let library = launch.library;
        let [begin, count] = run.touched(self.len);
        let vectors = Run {
            begin,
            len: count,
            cols: usize::MAX,
        };
        let mut sum = None;
        for stage in &self.stages {
            let codes = stage.codes.values(launch, first, vectors)?;
            let codes = library.cast(&codes, DType::I64)?;
            let codebook = stage.codebook(launch, first, self.len)?;
            let part = library.select(&codebook, 0, &codes)?;
            sum = Some(match sum.take() {
                None => part,
                Some(sum) => library.add(&sum, &part)?,
            });
        }
        let sum = sum.expect("a description has a stage");
        let flat = library.reshape(&sum, &[count * self.len])?;
        library.narrow(&flat, 0, run.begin - begin * self.len, run.len)
    }
}

impl Stage {
    /// The vectors, `[entries, len]` of f32.
    fn codebook<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        len: usize,
    ) -> Result<L::Tensor> {
        let shape = [self.entries, len];
        match &self.codebook {
            Codebook::Shared(values) => launch.library.floats(values, &shape),
            Codebook::Segment { segment, begin } => {
                let numbers = launch.param(first + segment);
                let numbers = numbers.narrowed(0, *begin, self.entries * len);
                launch.float(&numbers.reshaped(&shape))
            }
        }
    }
}
