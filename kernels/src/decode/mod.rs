//! A packed weight and the description of its format -> a range of its rows and columns as numbers.
//!
//! `table[code] * scale[block]` or `(code - zero[block]) * scale[block]`, in f32, each operation rounded: bit
//! for bit what `Format::decode`, the reference, gives. f64 outputs are the same values widened.

mod nibbles;
mod unpack;

use std::ops::Range;

use espalier_interface::format::{BlockMap, BlockValues, Codes, Decoding, Format};
use espalier_interface::{PluginError, Result};

use crate::element::{Element, convert};
use crate::simd::vectorized;

/// Elements that are decoded into the stack at once.
const CHUNK: usize = 256;

/// A format that has been checked, ready to decode weights that have it.
#[derive(Clone, Debug)]
pub struct Packed {
    format: Format,
    /// The codebook, where it has 16 values.
    table: Option<[f32; 16]>,
}

impl Packed {
    /// A decoder for weights of `format`.
    ///
    /// # Errors
    /// `INVALID` where the format contradicts itself, `UNSUPPORTED` for [`Decoding::Callback`].
    pub fn new(format: Format) -> Result<Self> {
        format.validate()?;
        let table = match &format.decoding {
            Decoding::Callback => {
                return Err(PluginError::unsupported(format!(
                    "quantizer `{}` describes no decoding: call its `decode`",
                    format.quantizer
                )));
            }
            Decoding::Codebook { codes, table, .. } if codes.bits == 4 => {
                <[f32; 16]>::try_from(table.as_slice()).ok()
            }
            _ => None,
        };
        Ok(Packed { format, table })
    }

    /// `[N, M]`.
    pub fn shape(&self) -> [usize; 2] {
        self.format.shape.map(|extent| extent as usize)
    }

    /// The format it decodes.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Writes the elements of `rows` x `cols`. Allocates nothing and may run on many threads at once.
    ///
    /// # Shapes
    /// `segments`: as the format lists them; `out`: `[rows.len(), cols.len()]`, row major.
    ///
    /// # Panics
    /// Where a segment is shorter than the format says, or `out` has another length.
    pub fn decode<E: Element>(
        &self,
        segments: &[&[u8]],
        rows: Range<usize>,
        cols: Range<usize>,
        out: &mut [E],
    ) {
        let width = cols.len();
        assert!(
            out.len() == rows.len() * width,
            "decode: the output's shape disagrees"
        );
        if width == 0 {
            return;
        }
        let mut buffer = [0.0f32; CHUNK];
        for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
            for (i, out) in out.chunks_mut(CHUNK).enumerate() {
                let buffer = &mut buffer[..out.len()];
                self.chunk(segments, row, cols.start + i * CHUNK, buffer);
                vectorized(
                    #[inline(always)]
                    || {
                        for (out, &x) in out.iter_mut().zip(&*buffer) {
                            *out = convert(x);
                        }
                    },
                );
            }
        }
    }

    /// The elements of `row` from `col` on.
    fn chunk(&self, segments: &[&[u8]], row: usize, col: usize, out: &mut [f32]) {
        let flat = row * self.format.shape[1] as usize + col;
        match &self.format.decoding {
            Decoding::Codebook {
                codes,
                table,
                blocks,
                scale,
            } => {
                if let Some(table) = &self.table {
                    let bytes = segments[codes.segment];
                    return self.runs(*blocks, row, col, out.len(), |run, block| {
                        let scale = self.format.block_value(segments, scale, block);
                        let first = flat + run.start;
                        nibbles::decode(bytes, first, codes.order, table, scale, &mut out[run]);
                    });
                }
                let found = self.codes(segments, codes, flat, out.len());
                self.runs(*blocks, row, col, out.len(), |run, block| {
                    let scale = self.format.block_value(segments, scale, block);
                    for (out, &code) in out[run.clone()].iter_mut().zip(&found[run]) {
                        *out = table[usize::from(code)] * scale;
                    }
                });
            }
            Decoding::Affine {
                codes,
                blocks,
                scale,
                zero,
            } => {
                let found = self.codes(segments, codes, flat, out.len());
                self.affine(segments, (*blocks, row, col), [scale, zero], &found, out);
            }
            Decoding::Callback => unreachable!("refused by `Packed::new`"),
        }
    }

    fn affine(
        &self,
        segments: &[&[u8]],
        (blocks, row, col): (BlockMap, usize, usize),
        [scale, zero]: [&BlockValues; 2],
        codes: &[u8; CHUNK],
        out: &mut [f32],
    ) {
        self.runs(blocks, row, col, out.len(), |run, block| {
            let zero = self.format.block_value(segments, zero, block);
            let scale = self.format.block_value(segments, scale, block);
            vectorized(
                #[inline(always)]
                || {
                    for (out, &code) in out[run.clone()].iter_mut().zip(&codes[run]) {
                        *out = (f32::from(code) - zero) * scale;
                    }
                },
            );
        });
    }

    /// The codes of the `n` elements from `flat` on.
    fn codes(&self, segments: &[&[u8]], codes: &Codes, flat: usize, n: usize) -> [u8; CHUNK] {
        let mut found = [0u8; CHUNK];
        unpack::unpack(segments[codes.segment], codes, flat, &mut found[..n]);
        found
    }

    /// Calls `body(elements, block)` for each run of one block among `n` elements of `row` from `col`.
    fn runs(
        &self,
        blocks: BlockMap,
        row: usize,
        col: usize,
        n: usize,
        mut body: impl FnMut(Range<usize>, u64),
    ) {
        let width = self.format.shape[1];
        let mut done = 0;
        while done < n {
            let at = (col + done) as u64;
            let block = blocks.block(row as u64, at, width);
            let len = match blocks {
                BlockMap::Flat { size } => (size - (row as u64 * width + at) % size) as usize,
                BlockMap::Rows => n,
                BlockMap::Strided { .. } | BlockMap::Columns => 1,
            };
            let end = n.min(done + len);
            body(done..end, block);
            done = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::DType;
    use espalier_interface::format::{BitOrder, SegmentSpec};
    use espalier_interface::random;

    use super::*;

    fn bytes(n: u64, stream: u32) -> Vec<u8> {
        (0..n)
            .map(|i| random::philox([stream, 0], [i as u32, 0, 0, 0])[0] as u8)
            .collect()
    }

    fn floats(n: u64, stream: u32) -> Vec<u8> {
        let draw = |i| random::uniform(random::philox([stream, 1], [i, 0, 0, 0])[0]) - 0.5;
        (0..n as u32).flat_map(|i| draw(i).to_le_bytes()).collect()
    }

    /// Every range of a weight in `format` decodes as the reference does.
    fn equals_the_reference(decoding: Decoding, shape: [u64; 2], bits: u64, blocks: u64) {
        let elements = shape[0] * shape[1];
        let format = Format {
            quantizer: "test".into(),
            shape,
            segments: vec![
                SegmentSpec::new("codes", DType::U8, elements.div_ceil(8 / bits)),
                SegmentSpec::new("scale", DType::F32, blocks),
                SegmentSpec::new("zero", DType::F32, blocks),
                SegmentSpec::new("scale_codes", DType::U8, blocks),
                SegmentSpec::new("nested", DType::F32, blocks),
                SegmentSpec::new("offset", DType::F32, 1),
            ],
            decoding,
        };
        let segments = [
            bytes(elements.div_ceil(8 / bits), 1),
            floats(blocks, 2),
            floats(blocks, 3),
            bytes(blocks, 4),
            floats(blocks, 5),
            floats(1, 6),
        ];
        let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        let packed = Packed::new(format.clone()).expect("it fits");
        let [n, m] = packed.shape();
        for (rows, cols) in [(0..n, 0..m), (1..2, 0..m), (0..n, 3..m - 1), (1..3, 5..6)] {
            let mut fast = vec![0.0f32; rows.len() * cols.len()];
            packed.decode(&segments, rows.clone(), cols.clone(), &mut fast);
            let mut slow = vec![1.0f32; fast.len()];
            let wide = |r: &Range<usize>| r.start as u64..r.end as u64;
            format
                .decode(&segments, wide(&rows), wide(&cols), &mut slow)
                .expect("described");
            assert_eq!(fast, slow, "{:?} {rows:?} {cols:?}", format.decoding);
        }
    }

    #[test]
    fn all_formats_equal_the_reference() {
        let shape = [5, 333];
        for bits in [1u32, 2, 4, 8] {
            let table: Vec<f32> = (0..1 << bits).map(|i| (i as f32).sin()).collect();
            for order in [BitOrder::HighFirst, BitOrder::LowFirst] {
                for blocks in [
                    BlockMap::Flat { size: 64 },
                    BlockMap::Flat { size: 32 },
                    BlockMap::Strided { count: 37 },
                    BlockMap::Rows,
                    BlockMap::Columns,
                ] {
                    let codes = Codes {
                        segment: 0,
                        bits,
                        order,
                    };
                    let stored = |segment| BlockValues::Stored { segment };
                    let nested = BlockValues::Nested {
                        codes: 3,
                        table: (0..256).map(|i| (i as f32).cos()).collect(),
                        scales: 4,
                        size: 7,
                        offset: 5,
                    };
                    let count = blocks.count(shape);
                    let affine = Decoding::Affine {
                        codes: codes.clone(),
                        blocks,
                        scale: stored(1),
                        zero: stored(2),
                    };
                    equals_the_reference(affine, shape, u64::from(bits), count);
                    for scale in [stored(1), nested] {
                        let (codes, table) = (codes.clone(), table.clone());
                        let decoding = Decoding::Codebook {
                            codes,
                            table,
                            blocks,
                            scale,
                        };
                        equals_the_reference(decoding, shape, u64::from(bits), count);
                    }
                }
            }
        }
    }

    #[test]
    fn a_callback_is_refused() {
        let format = Format {
            quantizer: "odd".into(),
            shape: [1, 1],
            segments: Vec::new(),
            decoding: Decoding::Callback,
        };
        let error = Packed::new(format).expect_err("nothing described");
        assert!(
            error.message.contains("`odd` describes no decoding"),
            "{error}"
        );
    }
}
