//! Codes of vectors -> the sums of the vectors that they stand for, of one codebook for each stage.

use espalier_interface::format::Codes;
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
    /// Segment of the codebook, `[entries, len]`.
    codebook: usize,
    entries: usize,
}

impl Vectors {
    /// Vectors of `len` elements; for each stage their codes and the segment of its codebook.
    pub fn new(codes: &[Codes], codebooks: &[usize], len: u64) -> Self {
        let stages = codes.iter().zip(codebooks).map(|(codes, codebook)| Stage {
            codes: CodeNumbers::count(codes),
            codebook: *codebook,
            entries: 1 << codes.bits,
        });
        Vectors {
            stages: stages.collect(),
            len: len as usize,
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
            let numbers = stage.entries * self.len;
            let codebook = launch
                .param(first + stage.codebook)
                .narrowed(0, 0, numbers)
                .reshaped(&[stage.entries, self.len]);
            let part = library.select(&launch.float(&codebook)?, 0, &codes)?;
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
