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
    /// What follows.
    pub(super) steps: Vec<Step>,
    /// What follows a product with a Hadamard matrix, which ends those steps.
    pub(super) rotated: Option<Rotated>,
}

/// A product of runs with a Hadamard matrix, and the steps after it.
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
            ValueSource::Count { .. } | ValueSource::Vectors { .. } => CodeTable::Count,
        };
        let (decoding, mut steps) = with_first_blocks(source, steps);
        let rotated = rotated(format, &mut steps)?;
        let format = Format {
            decoding,
            ..format.clone()
        };
        Ok(FormatDecoder {
            format,
            table,
            steps,
            rotated,
        })
    }
}

/// Cuts `steps` at their product with a Hadamard matrix.
fn rotated(format: &Format, steps: &mut Vec<Step>) -> Result<Option<Rotated>> {
    let mut places = steps
        .iter()
        .enumerate()
        .filter_map(|(at, step)| match step {
            Step::Hadamard { size } => Some((at, *size as usize)),
            _ => None,
        });
    let Some((at, size)) = places.next() else {
        return Ok(None);
    };
    if places.next().is_some() {
        return Err(PluginError::unsupported(format!(
            "quantizer `{}` describes two products with Hadamard matrices: one is decoded",
            format.quantizer
        )));
    }
    let after = steps.split_off(at + 1);
    steps.truncate(at);
    Ok(Some(Rotated { size, steps: after }))
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
