//! A described format -> stages that make the values of some rows, each a few tensor operations:
//! index -> code -> value -> times the scale of its block.

mod blocks;
mod codes;

use espalier_interface::Result;
use espalier_interface::format::{BitOrder, Codes, Decoding, Format};

use crate::launch::Launch;
use crate::{Binary, Tensors};
use blocks::BlockNumbers;
use codes::Source;

/// The stages of a format.
pub struct Stages {
    cols: usize,
    source: Source,
    /// Functions of each value and the number of its block.
    stages: Vec<(Binary, BlockNumbers)>,
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

impl Stages {
    /// The stages of `format`, which describes its decoding.
    ///
    /// # Errors
    /// `INVALID` for a format that contradicts itself, `UNSUPPORTED` for one without a description.
    pub fn new(format: &Format) -> Result<Self> {
        format.validate()?;
        let stages = format.stages();
        let is_stream = |codes: &Codes| codes.order == BitOrder::Stream;
        if stages.is_some_and(|(source, _)| source.codes().iter().any(is_stream)) {
            return Err(espalier_interface::PluginError::unsupported(format!(
                "quantizer `{}` has codes in a stream of bits: choose backend `cpu`",
                format.quantizer
            )));
        }
        let (source, stages) = match &format.decoding {
            Decoding::Codebook {
                codes,
                table,
                blocks,
                scale,
            } => {
                let scale = BlockNumbers::new(*blocks, scale);
                let source = Source::table(codes, |code| table[usize::from(code)]);
                (source, vec![(Binary::Mul, scale)])
            }
            Decoding::Affine {
                codes,
                blocks,
                scale,
                zero,
            } => {
                let zero = BlockNumbers::new(*blocks, zero);
                let scale = BlockNumbers::new(*blocks, scale);
                let stages = vec![(Binary::Sub, zero), (Binary::Mul, scale)];
                (Source::table(codes, f32::from), stages)
            }
            Decoding::Steps { .. } => {
                return Err(espalier_interface::PluginError::unsupported(format!(
                    "quantizer `{}` describes its format by steps: choose backend `cpu`",
                    format.quantizer
                )));
            }
            Decoding::Callback => {
                return Err(espalier_interface::PluginError::unsupported(format!(
                    "quantizer `{}` describes no decoding",
                    format.quantizer
                )));
            }
        };
        Ok(Stages {
            cols: format.shape[1] as usize,
            source,
            stages,
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
        let mut values = self.source.values(launch, first, run)?;
        for (function, numbers) in &self.stages {
            values = numbers.applied(launch, first, *function, &values, run)?;
        }
        launch.library.reshape(&values, &[len, self.cols])
    }
}
