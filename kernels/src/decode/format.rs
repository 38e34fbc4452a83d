//! A packed weight's description -> its decoder.

use espalier_interface::format::{Decoding, Format, Step, ValueSource};
use espalier_interface::{PluginError, Result};

/// How to decode the weights of one format; made once, outside the hot path.
#[derive(Clone, Debug)]
pub struct FormatDecoder {
    /// With the decoding before `steps`: of codebooks and affine formats with their first blocks,
    /// else a source without steps.
    pub(super) format: Format,
    pub(super) table: CodeTable,
    /// What follows, up to a product with a Hadamard matrix.
    pub(super) steps: Vec<Step>,
    /// Each of those products, in their order, with what follows it.
    pub(super) rotations: Vec<Rotated>,
}

/// A product of runs with a Hadamard matrix, and the steps after it up to the next.
#[derive(Clone, Debug)]
pub(super) struct Rotated {
    pub(super) size: usize,
    pub(super) steps: Vec<Step>,
}

/// The unscaled value of a code.
#[derive(Clone, Debug)]
pub(super) enum CodeTable {
    /// Up to 4 bits, padded.
    Small([f32; 16]),
    /// Up to 8 bits, padded.
    Large(Box<[f32; 256]>),
    /// The code as a number.
    Count,
}

impl FormatDecoder {
    /// The decoder of `format`.
    ///
    /// # Errors
    /// `INVALID` where the format contradicts itself, `UNSUPPORTED` where only its quantizer can
    /// decode it.
    pub fn new(format: &Format) -> Result<Self> {
        format.validate()?;
        let Some((source, steps)) = format.stages() else {
            return Err(PluginError::unsupported(format!(
                "quantizer `{}` describes no decoding: call its `decode`",
                format.quantizer
            )));
        };
        let table = match &source {
            ValueSource::Table { table, .. } if table.len() <= 16 => {
                let mut padded = [0.0; 16];
                padded[..table.len()].copy_from_slice(table);
                CodeTable::Small(padded)
            }
            ValueSource::Table { table, .. } => {
                let mut padded = Box::new([0.0; 256]);
                padded[..table.len()].copy_from_slice(table);
                CodeTable::Large(padded)
            }
            ValueSource::Count { .. }
            | ValueSource::Vectors { .. }
            | ValueSource::SharedVectors { .. } => CodeTable::Count,
        };
        let (decoding, mut steps) = with_first_blocks(source, steps);
        let rotations = rotations(&mut steps);
        let format = Format {
            decoding,
            ..format.clone()
        };
        Ok(FormatDecoder {
            format,
            table,
            steps,
            rotations,
        })
    }
}

/// Cuts `steps` at their products with Hadamard matrices.
fn rotations(steps: &mut Vec<Step>) -> Vec<Rotated> {
    let mut rotations: Vec<Rotated> = Vec::new();
    let mut before = Vec::new();
    for step in steps.drain(..) {
        match (step, rotations.last_mut()) {
            (Step::Hadamard { size }, _) => rotations.push(Rotated {
                size: size as usize,
                steps: Vec::new(),
            }),
            (step, Some(rotated)) => rotated.steps.push(step),
            (step, None) => before.push(step),
        }
    }
    *steps = before;
    rotations
}

/// A decoding that has passes of its own, and the steps after it.
fn with_first_blocks(source: ValueSource, mut steps: Vec<Step>) -> (Decoding, Vec<Step>) {
    match (source, &steps[..]) {
        (ValueSource::Table { codes, table }, [Step::Times { blocks, values }, ..]) => {
            let (blocks, scale) = (*blocks, values.clone());
            let decoding = Decoding::Codebook {
                codes,
                table,
                blocks,
                scale,
            };
            (decoding, steps.split_off(1))
        }
        (
            ValueSource::Count { codes },
            [
                Step::Minus {
                    blocks,
                    values: zero,
                },
                Step::Times {
                    blocks: same,
                    values: scale,
                },
                ..,
            ],
        ) if blocks == same => {
            let (blocks, scale, zero) = (*blocks, scale.clone(), zero.clone());
            let decoding = Decoding::Affine {
                codes,
                blocks,
                scale,
                zero,
            };
            (decoding, steps.split_off(2))
        }
        (source, _) => {
            let decoding = Decoding::Steps {
                source,
                steps: Vec::new(),
            };
            (decoding, steps)
        }
    }
}

#[cfg(test)]
mod tests;
