//! A packed weight's description and segments -> its values, with vectors.
//!
//! Gives the bits of [`Format::decode`]: the same products and sums, each rounded once.

use std::ops::Range;

use espalier_interface::format::{BlockMap, BlockValues, Codes, Decoding, Format};
use espalier_interface::{DType, PluginError, Result};
use half::{bf16, f16};

use super::TileDecoder;
use super::codes::{look_up_16, look_up_packed, unpack};
use crate::element::Element;
use crate::matmul::Isa;
use crate::simd::vectorized;

/// Elements decoded at a time.
const RUN: usize = 256;

/// How to decode the weights of one format; made once, outside the hot path.
#[derive(Clone, Debug)]
pub struct FormatDecoder {
    format: Format,
    table: Table,
}

/// What a code stands for before it is scaled.
#[derive(Clone, Debug)]
enum Table {
    /// Up to 4 bits, padded.
    Small([f32; 16]),
    /// 8 bits.
    Large(Box<[f32; 256]>),
    /// The code itself, as a number.
    Count,
}

/// A [`FormatDecoder`] and the segments of one weight.
#[derive(Clone, Copy, Debug)]
pub struct PackedWeight<'a> {
    decoder: &'a FormatDecoder,
    segments: &'a [&'a [u8]],
    isa: Isa,
}

impl FormatDecoder {
    /// The decoder of `format`.
    ///
    /// # Errors
    /// `INVALID` where the format disagrees with itself, `UNSUPPORTED` where only its quantizer can
    /// decode it.
    pub fn new(format: &Format) -> Result<Self> {
        format.validate()?;
        let table = match &format.decoding {
            Decoding::Codebook { table, .. } if table.len() <= 16 => {
                let mut padded = [0.0; 16];
                padded[..table.len()].copy_from_slice(table);
                Table::Small(padded)
            }
            Decoding::Codebook { table, .. } => {
                let values: Box<[f32]> = table.clone().into();
                Table::Large(values.try_into().expect("a validated table has 256 values"))
            }
            Decoding::Affine { .. } => Table::Count,
            Decoding::Callback => {
                return Err(PluginError::unsupported(format!(
                    "quantizer `{}` describes no decoding: call its `decode`",
                    format.quantizer
                )));
            }
        };
        let format = format.clone();
        Ok(FormatDecoder { format, table })
    }

    /// The weight in `segments`, in the format's order.
    ///
    /// # Panics
    /// Where a segment is shorter than the format says.
    pub fn weight<'a>(&'a self, segments: &'a [&'a [u8]]) -> PackedWeight<'a> {
        let specs = &self.format.segments;
        assert_eq!(
            segments.len(),
            specs.len(),
            "a packed weight has other segments"
        );
        for (segment, spec) in segments.iter().zip(specs) {
            assert!(
                segment.len() as u64 >= spec.bytes(),
                "segment `{}` is too short",
                spec.name
            );
        }
        PackedWeight {
            decoder: self,
            segments,
            isa: Isa::detect(),
        }
    }
}

impl TileDecoder for PackedWeight<'_> {
    fn size(&self) -> (usize, usize) {
        let [rows, cols] = self.decoder.format.shape;
        (rows as usize, cols as usize)
    }

    fn decode(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        let width = cols.len();
        if width == 0 {
            return;
        }
        for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
            for (col, out) in (cols.start..).step_by(RUN).zip(out.chunks_mut(RUN)) {
                self.run(row, col, out);
            }
        }
    }
}

impl PackedWeight<'_> {
    /// Decodes at most [`RUN`] elements of `row` from `col` on.
    fn run(&self, row: usize, col: usize, out: &mut [f32]) {
        match &self.decoder.format.decoding {
            Decoding::Codebook {
                codes,
                blocks,
                scale,
                ..
            } => {
                if let (Table::Small(table), Some(size)) =
                    (&self.decoder.table, self.piece(*blocks))
                {
                    return self.scaled_tables(codes, scale, (table, size), row, col, out);
                }
                self.numbers(codes, row, col, out);
                let mut scales = [0.0; RUN];
                let scales = &mut scales[..out.len()];
                self.spread(*blocks, scale, row, col, scales);
                vectorized(
                    #[inline(always)]
                    || {
                        out.iter_mut()
                            .zip(scales.iter())
                            .for_each(|(x, &scale)| *x *= scale)
                    },
                );
            }
            Decoding::Affine {
                codes,
                blocks,
                scale,
                zero,
            } => {
                self.numbers(codes, row, col, out);
                let (mut scales, mut zeros) = ([0.0; RUN], [0.0; RUN]);
                let (scales, zeros) = (&mut scales[..out.len()], &mut zeros[..out.len()]);
                self.spread(*blocks, scale, row, col, scales);
                self.spread(*blocks, zero, row, col, zeros);
                vectorized(
                    #[inline(always)]
                    || {
                        let numbers = scales.iter().zip(zeros.iter());
                        for (x, (&scale, &zero)) in out.iter_mut().zip(numbers) {
                            *x = (*x - zero) * scale;
                        }
                    },
                );
            }
            Decoding::Callback => unreachable!("refused by `new`"),
        }
    }

    /// Elements that follow each other in a block, where there are many.
    fn piece(&self, blocks: BlockMap) -> Option<usize> {
        match blocks {
            BlockMap::Flat { size } => Some(size as usize),
            BlockMap::Rows => Some(self.size().1),
            BlockMap::Strided { .. } | BlockMap::Columns => None,
        }
    }

    /// Decodes block by block from the codebook times the block's scale: 16 products instead of one an
    /// element, and the same ones.
    fn scaled_tables(
        &self,
        codes: &Codes,
        scale: &BlockValues,
        (table, size): (&[f32; 16], usize),
        row: usize,
        col: usize,
        out: &mut [f32],
    ) {
        let flat = row * self.size().1 + col;
        let mut done = 0;
        while done < out.len() {
            let block = (flat + done) / size;
            let end = ((block + 1) * size - flat).min(out.len());
            let mut value = [0.0];
            self.values(scale, block, &mut value);
            let scaled = table.map(|x| x * value[0]);
            let bytes = self.segments[codes.segment];
            let layout = (codes.bits, codes.order);
            look_up_packed(
                self.isa,
                bytes,
                layout,
                flat + done,
                &scaled,
                &mut out[done..end],
            );
            done = end;
        }
    }

    /// What the codes stand for before they are scaled.
    fn numbers(&self, layout: &Codes, row: usize, col: usize, out: &mut [f32]) {
        let mut codes = [0u8; RUN];
        let codes = &mut codes[..out.len()];
        let (bytes, flat) = (self.segments[layout.segment], row * self.size().1 + col);
        vectorized(
            #[inline(always)]
            || unpack(bytes, layout.bits, layout.order, flat, codes),
        );
        match &self.decoder.table {
            Table::Small(table) => look_up_16(self.isa, table, codes, out),
            Table::Large(table) => {
                for (out, &code) in out.iter_mut().zip(codes.iter()) {
                    *out = table[usize::from(code)];
                }
            }
            Table::Count => vectorized(
                #[inline(always)]
                || {
                    out.iter_mut()
                        .zip(codes.iter())
                        .for_each(|(x, &code)| *x = f32::from(code))
                },
            ),
        }
    }

    /// The numbers of the blocks that the elements of `row` from `col` on belong to, one an element.
    fn spread(&self, map: BlockMap, values: &BlockValues, row: usize, col: usize, out: &mut [f32]) {
        let flat = row * self.size().1 + col;
        match map {
            BlockMap::Flat { size } => {
                let size = size as usize;
                let mut done = 0;
                while done < out.len() {
                    let block = (flat + done) / size;
                    let end = ((block + 1) * size - flat).min(out.len());
                    let mut value = [0.0];
                    self.values(values, block, &mut value);
                    out[done..end].fill(value[0]);
                    done = end;
                }
            }
            BlockMap::Strided { count } => {
                let count = count as usize;
                let mut done = 0;
                while done < out.len() {
                    let block = (flat + done) % count;
                    let end = (done + count - block).min(out.len());
                    self.values(values, block, &mut out[done..end]);
                    done = end;
                }
            }
            BlockMap::Rows => {
                let mut value = [0.0];
                self.values(values, row, &mut value);
                out.fill(value[0]);
            }
            BlockMap::Columns => self.values(values, col, out),
        }
    }

    /// The numbers of the blocks from `first` on.
    fn values(&self, values: &BlockValues, first: usize, out: &mut [f32]) {
        match values {
            BlockValues::Stored { segment } => {
                let bytes = self.segments[*segment];
                match self.decoder.format.segments[*segment].dtype {
                    DType::F32 => stored(bytes, first, out, f32::from_le_bytes),
                    DType::BF16 => stored(bytes, first, out, |x| bf16::from_le_bytes(x).load()),
                    _ => stored(bytes, first, out, |x| f16::from_le_bytes(x).load()),
                }
            }
            BlockValues::Nested {
                codes,
                table,
                scales,
                size,
                offset,
            } => {
                let codes = &self.segments[*codes][first..first + out.len()];
                let number = |segment: usize, idx: usize| {
                    let mut value = [0.0];
                    stored(self.segments[segment], idx, &mut value, f32::from_le_bytes);
                    value[0]
                };
                let offset = number(*offset, 0);
                for (i, (out, &code)) in out.iter_mut().zip(codes).enumerate() {
                    let scale = number(*scales, (first + i) / *size as usize);
                    *out = table[usize::from(code)] * scale + offset;
                }
            }
        }
    }
}

/// Reads numbers of `BYTES` bytes from number `first` on.
#[inline(always)]
fn stored<const BYTES: usize>(
    bytes: &[u8],
    first: usize,
    out: &mut [f32],
    read: impl Fn([u8; BYTES]) -> f32,
) {
    let bytes = &bytes[first * BYTES..(first + out.len()) * BYTES];
    for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<BYTES>().0) {
        *out = read(*bytes);
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::format::{BitOrder, SegmentSpec};

    use super::*;
    use crate::matmul::tests::numbers;

    /// Every kind of format, `[rows, cols]`, with segments of random bytes and sane numbers.
    fn formats(shape: [u64; 2]) -> Vec<(Format, Vec<Vec<u8>>)> {
        let maps = [
            BlockMap::Flat { size: 64 },
            BlockMap::Flat { size: 24 },
            BlockMap::Strided { count: 40 },
            BlockMap::Rows,
            BlockMap::Columns,
        ];
        let mut formats = Vec::new();
        for bits in [1, 2, 4, 8] {
            for order in [BitOrder::HighFirst, BitOrder::LowFirst] {
                for blocks in maps {
                    for dtype in [DType::F32, DType::BF16, DType::F16] {
                        let codes = Codes {
                            segment: 0,
                            bits,
                            order,
                        };
                        let count = blocks.count(shape);
                        let elements = shape[0] * shape[1];
                        let mut segments = vec![
                            SegmentSpec::new(
                                "codes",
                                DType::U8,
                                elements.div_ceil(8 / u64::from(bits)),
                            ),
                            SegmentSpec::new("scale", dtype, count),
                            SegmentSpec::new("zero", dtype, count),
                            SegmentSpec::new("nested_codes", DType::U8, count),
                            SegmentSpec::new("nested_scales", DType::F32, count.div_ceil(16)),
                            SegmentSpec::new("offset", DType::F32, 1),
                        ];
                        segments[0].len += 3;
                        let scale = BlockValues::Stored { segment: 1 };
                        let zero = BlockValues::Stored { segment: 2 };
                        let nested = BlockValues::Nested {
                            codes: 3,
                            table: numbers(256, 9),
                            scales: 4,
                            size: 16,
                            offset: 5,
                        };
                        let table = numbers(1 << bits, 8);
                        let decodings = [
                            Decoding::Affine {
                                codes: codes.clone(),
                                blocks,
                                scale: scale.clone(),
                                zero,
                            },
                            Decoding::Codebook {
                                codes: codes.clone(),
                                table: table.clone(),
                                blocks,
                                scale,
                            },
                            Decoding::Codebook {
                                codes,
                                table,
                                blocks,
                                scale: nested,
                            },
                        ];
                        let bytes = |spec: &SegmentSpec| -> Vec<u8> {
                            let x = numbers::<f32>(spec.len as usize, spec.name.len() as u64);
                            let x = x.into_iter();
                            match spec.dtype {
                                DType::F32 => x.flat_map(f32::to_le_bytes).collect(),
                                DType::BF16 => {
                                    x.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect()
                                }
                                DType::F16 => {
                                    x.flat_map(|x| f16::from_f32(x).to_le_bytes()).collect()
                                }
                                _ => x.map(|x| (x * 1e6) as i32 as u8).collect(),
                            }
                        };
                        let data: Vec<_> = segments.iter().map(bytes).collect();
                        for decoding in decodings {
                            let quantizer = "test".to_owned();
                            let segments = segments.clone();
                            let format = Format {
                                quantizer,
                                shape,
                                segments,
                                decoding,
                            };
                            formats.push((format, data.clone()));
                        }
                    }
                }
            }
        }
        formats
    }

    #[test]
    fn equals_the_reference_decoder_bit_for_bit() {
        for shape in [[7, 333], [3, 520]] {
            for (format, data) in formats(shape) {
                let segments: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                let decoder = FormatDecoder::new(&format).expect("it is described");
                for &isa in Isa::available() {
                    let weight = PackedWeight {
                        isa,
                        ..decoder.weight(&segments)
                    };
                    for (rows, cols) in [(0..3u64, 0..shape[1]), (1..2, 5..300), (2..3, 17..17)] {
                        let len = ((rows.end - rows.start) * (cols.end - cols.start)) as usize;
                        let (mut expected, mut found) = (vec![0.0; len], vec![1.0; len]);
                        format
                            .decode(&segments, rows.clone(), cols.clone(), &mut expected)
                            .expect("it is described");
                        let window = |r: Range<u64>| r.start as usize..r.end as usize;
                        weight.decode(window(rows), window(cols), &mut found);
                        assert!(found == expected, "{:?} {isa:?}", format.decoding);
                    }
                }
            }
        }
    }

    #[test]
    fn what_only_the_quantizer_decodes_is_refused() {
        let (mut format, _) = formats([1, 4]).swap_remove(0);
        format.decoding = Decoding::Callback;
        let message = FormatDecoder::new(&format)
            .expect_err("not described")
            .message;
        assert!(message.contains("`test`"), "{message}");
    }
}
