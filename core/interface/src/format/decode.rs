//! A packed weight -> its values, decoded element by element from the description: the reference
//! for every kernel.

use std::ops::Range;

use super::{BlockMap, BlockValues, Codebook, Format, Step, ValueSource, hadamard};
use crate::{DType, PluginError, Result};

impl Format {
    /// The reference decoder.
    ///
    /// # Shapes
    /// `out` is `[rows.len(), cols.len()]`, row major.
    ///
    /// # Errors
    /// `UNSUPPORTED` for [`Decoding::Callback`].
    pub fn decode(
        &self,
        segments: &[&[u8]],
        rows: Range<u64>,
        cols: Range<u64>,
        out: &mut [f32],
    ) -> Result<()> {
        let (source, steps) = self.stages().ok_or_else(|| {
            PluginError::unsupported(format!(
                "quantizer `{}` describes no decoding: call its `decode`",
                self.quantizer
            ))
        })?;
        let width = (cols.end - cols.start) as usize;
        if width > 0 {
            for (row, out) in rows.zip(out.chunks_mut(width)) {
                self.decode_run(segments, (&source, &steps), row, cols.clone(), out);
            }
        }
        Ok(())
    }

    /// Decodes elements of `row`.
    fn decode_run(
        &self,
        segments: &[&[u8]],
        (source, steps): (&ValueSource, &[Step]),
        row: u64,
        cols: Range<u64>,
        out: &mut [f32],
    ) {
        let size = |step: &Step| match step {
            Step::Hadamard { size } => Some(*size),
            _ => None,
        };
        let last = steps.iter().rposition(|step| size(step).is_some());
        let mut steps = steps;
        if let Some((at, size)) = last.and_then(|at| Some((at, size(&steps[at])?))) {
            // The whole runs of the elements, then theirs.
            let whole = cols.start / size * size..cols.end.div_ceil(size) * size;
            let mut values = vec![0.0; (whole.end - whole.start) as usize];
            let before = (source, &steps[..at]);
            self.decode_run(segments, before, row, whole.clone(), &mut values);
            values.chunks_mut(size as usize).for_each(hadamard);
            let skipped = (cols.start - whole.start) as usize;
            out.copy_from_slice(&values[skipped..skipped + out.len()]);
            steps = &steps[at + 1..];
        } else {
            for (col, out) in cols.clone().zip(out.iter_mut()) {
                *out = self.source_value(segments, source, row * self.shape[1] + col);
            }
        }
        for (col, out) in cols.zip(out.iter_mut()) {
            *out = steps.iter().fold(*out, |value, step| {
                self.stepped(segments, step, (row, col), value)
            });
        }
    }

    /// The value of element `flat` before any step.
    fn source_value(&self, segments: &[&[u8]], source: &ValueSource, flat: u64) -> f32 {
        match source {
            ValueSource::Table { codes, table } => {
                table[usize::from(codes.read(segments[codes.segment], flat))]
            }
            ValueSource::Count { codes } => f32::from(codes.read(segments[codes.segment], flat)),
            ValueSource::Vectors { .. } | ValueSource::SharedVectors { .. } => {
                let vectors = source.vectors().expect("a source of vectors");
                let len = vectors.len;
                let parts = vectors.stages().map(|(codes, codebook)| {
                    let code = u64::from(codes.read_wide(segments[codes.segment], flat / len));
                    let at = code * len + flat % len;
                    match codebook {
                        Codebook::Segment { segment, first } => {
                            self.number(segments, segment, first + at)
                        }
                        Codebook::Shared(values) => values[at as usize],
                    }
                });
                parts.reduce(|sum, part| sum + part).unwrap_or(0.0)
            }
        }
    }

    /// `value` of the element at `row` and `col` after a step, which reads no other element.
    fn stepped(&self, segments: &[&[u8]], step: &Step, (row, col): (u64, u64), value: f32) -> f32 {
        let number = |blocks: &BlockMap, values: &BlockValues| {
            self.block_value(segments, values, blocks.block(row, col, self.shape[1]))
        };
        match step {
            Step::Times { blocks, values } => value * number(blocks, values),
            Step::Plus { blocks, values } => value + number(blocks, values),
            Step::Minus { blocks, values } => value - number(blocks, values),
            Step::Outliers {
                size,
                count,
                positions,
                values,
            } => {
                let flat = row * self.shape[1] + col;
                let (block, position) = (flat / size, flat % size);
                let entries = block * count..(block + 1) * count;
                let is_own =
                    |&entry: &u64| u64::from(segments[*positions][entry as usize]) == position;
                match entries.rev().find(is_own) {
                    Some(entry) => self.number(segments, *values, entry),
                    None => value,
                }
            }
            Step::Hadamard { .. } => unreachable!("taken by whole runs"),
        }
    }

    fn number(&self, segments: &[&[u8]], segment: usize, at: u64) -> f32 {
        float(segments[segment], self.segments[segment].dtype, at)
    }

    /// The number of block `block`, as [`BlockValues`] defines it.
    pub fn block_value(&self, segments: &[&[u8]], values: &BlockValues, block: u64) -> f32 {
        let number = |segment: usize, at: u64| self.number(segments, segment, at);
        match values {
            BlockValues::Stored { segment } => number(*segment, block),
            BlockValues::Interleaved {
                segment,
                dtype,
                start,
                bytes,
            } => {
                let at = start + block * bytes;
                float(&segments[*segment][at as usize..], *dtype, 0)
            }
            BlockValues::Product {
                values,
                factors,
                size,
            } => {
                let factor = self.block_value(segments, factors, block / size);
                self.block_value(segments, values, block) * factor
            }
            BlockValues::Nested {
                codes,
                table,
                scales,
                size,
                offset,
            } => {
                let code = segments[*codes][block as usize];
                table[usize::from(code)] * number(*scales, block / size) + number(*offset, 0)
            }
            BlockValues::Affine {
                codes,
                groups,
                scales,
                zeros,
            } => {
                let code = segments[*codes][block as usize];
                let group = groups.block(0, block, u64::MAX);
                (f32::from(code) - number(*zeros, group)) * number(*scales, group)
            }
            BlockValues::Table {
                codes,
                table,
                scale,
                ..
            } => {
                let code = codes.read(segments[codes.segment], block);
                let value = table[usize::from(code)];
                scale.map_or(value, |scale| {
                    scale.apply(value, number(scale.segment(), 0))
                })
            }
        }
    }
}

fn float(bytes: &[u8], dtype: DType, index: u64) -> f32 {
    let index = index as usize;
    if dtype == DType::F32 {
        let at = &bytes[4 * index..4 * index + 4];
        return f32::from_le_bytes(at.try_into().expect("four bytes"));
    }
    let at = u16::from_le_bytes(
        bytes[2 * index..2 * index + 2]
            .try_into()
            .expect("two bytes"),
    );
    if dtype == DType::BF16 {
        half::bf16::from_bits(at).to_f32()
    } else {
        half::f16::from_bits(at).to_f32()
    }
}
