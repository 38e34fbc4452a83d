//! A packed weight -> its values, decoded element by element from the description: the reference
//! for every kernel.

use std::ops::Range;

use super::{BlockValues, Decoding, Format};
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
        let width = self.shape[1];
        let mut out = out.iter_mut();
        for row in rows {
            for col in cols.clone() {
                let slot = out.next().expect("out holds rows x cols elements");
                *slot = self.element(segments, row, col, width)?;
            }
        }
        Ok(())
    }

    fn element(&self, segments: &[&[u8]], row: u64, col: u64, width: u64) -> Result<f32> {
        let flat = row * width + col;
        match &self.decoding {
            Decoding::Codebook {
                codes,
                table,
                blocks,
                scale,
            } => {
                let code = codes.read(segments[codes.segment], flat);
                let scale = self.block_value(segments, scale, blocks.block(row, col, width));
                Ok(table[usize::from(code)] * scale)
            }
            Decoding::Affine {
                codes,
                blocks,
                scale,
                zero,
            } => {
                let code = codes.read(segments[codes.segment], flat);
                let block = blocks.block(row, col, width);
                let zero = self.block_value(segments, zero, block);
                Ok((f32::from(code) - zero) * self.block_value(segments, scale, block))
            }
            Decoding::Callback => Err(PluginError::unsupported(format!(
                "quantizer `{}` describes no decoding: call its `decode`",
                self.quantizer
            ))),
        }
    }

    /// The number of block `block`, as [`BlockValues`] defines it.
    pub fn block_value(&self, segments: &[&[u8]], values: &BlockValues, block: u64) -> f32 {
        let number =
            |segment: usize, at: u64| float(segments[segment], self.segments[segment].dtype, at);
        match values {
            BlockValues::Stored { segment } => number(*segment, block),
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
