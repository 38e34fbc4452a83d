//! The layout of a packed weight as data, from which every backend builds its own kernels.
//!
//! A weight is `[N, M]`, row major; element `(r, c)` has the flat index `i = r M + c`.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{DType, PluginError, Result};

/// A named run of bytes of a packed weight. Its size is a pure function of shape and options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentSpec {
    /// Name, such as `codes` or `absmax`.
    pub name: String,
    /// Element type of the bytes.
    pub dtype: DType,
    /// Number of elements.
    pub len: u64,
}

impl SegmentSpec {
    /// A segment of `len` elements.
    pub fn new(name: &str, dtype: DType, len: u64) -> Self {
        SegmentSpec {
            name: name.to_owned(),
            dtype,
            len,
        }
    }

    /// Size in bytes; the largest number where that overflows.
    pub fn bytes(&self) -> u64 {
        self.len.saturating_mul(self.dtype.bytes())
    }
}

/// Which end of a byte holds the first of the codes packed into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BitOrder {
    /// The first code lies in the highest bits, as bitsandbytes packs.
    HighFirst,
    /// The first code lies in the lowest bits.
    LowFirst,
}

/// Codes of `bits` bits each, one an element in flat order, packed without gaps across a whole segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Codes {
    /// Index of the segment.
    pub segment: usize,
    /// 1, 2, 4 or 8: codes do not straddle bytes. (Other widths are stored in the next of these.)
    pub bits: u32,
    /// Order within a byte.
    pub order: BitOrder,
}

/// Which block an element belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockMap {
    /// Block `i / size`: consecutive elements of the flattened weight (bitsandbytes; HQQ axis 1).
    Flat {
        /// Elements a block.
        size: u64,
    },
    /// Block `i mod count`: elements `count` apart (HQQ axis 0).
    Strided {
        /// Number of blocks.
        count: u64,
    },
    /// Block `r`: a row each.
    Rows,
    /// Block `c`: a column each.
    Columns,
}

impl BlockMap {
    /// The block of element `(row, col)` of a weight with `cols` columns.
    #[inline]
    pub fn block(self, row: u64, col: u64, cols: u64) -> u64 {
        match self {
            BlockMap::Flat { size } => (row * cols + col) / size,
            BlockMap::Strided { count } => (row * cols + col) % count,
            BlockMap::Rows => row,
            BlockMap::Columns => col,
        }
    }

    /// Number of blocks of a weight `[rows, cols]`.
    pub fn count(self, [rows, cols]: [u64; 2]) -> u64 {
        match self {
            BlockMap::Flat { size } => (rows * cols).div_ceil(size),
            BlockMap::Strided { count } => count,
            BlockMap::Rows => rows,
            BlockMap::Columns => cols,
        }
    }
}

/// A number for every block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockValues {
    /// Stored plainly, one an element of the segment (f32, bf16 or f16).
    Stored {
        /// Index of the segment.
        segment: usize,
    },
    /// Quantized again (double quantization): `table[code[b]] * scale[b / size] + offset`.
    Nested {
        /// Segment of 8-bit codes, one a block.
        codes: usize,
        /// 256 values.
        table: Vec<f32>,
        /// Segment of f32 scales, one for `size` blocks.
        scales: usize,
        /// Blocks a scale.
        size: u64,
        /// Segment of one f32.
        offset: usize,
    },
}

/// How codes become numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decoding {
    /// `table[code] * scale[block]`, in f32.
    Codebook {
        /// The codes.
        codes: Codes,
        /// `2^bits` values.
        table: Vec<f32>,
        /// The blocks.
        blocks: BlockMap,
        /// Factor of each block.
        scale: BlockValues,
    },
    /// `(code - zero[block]) * scale[block]`, in f32.
    Affine {
        /// The codes.
        codes: Codes,
        /// The blocks.
        blocks: BlockMap,
        /// Factor of each block.
        scale: BlockValues,
        /// The code that means zero, of each block.
        zero: BlockValues,
    },
    /// Not of a usual kind: the host calls the plugin's `decode`.
    Callback,
}

/// The layout of one packed weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Format {
    /// Component that made it.
    pub quantizer: String,
    /// `[N, M]`.
    pub shape: [u64; 2],
    /// Segments in the order in which they are stored, at most [`Format::MOST_SEGMENTS`].
    pub segments: Vec<SegmentSpec>,
    /// How to read them.
    pub decoding: Decoding,
}

impl Format {
    /// Most segments of a weight.
    pub const MOST_SEGMENTS: usize = 16;

    /// Bytes of all segments together, without alignment; the largest number where that overflows.
    pub fn bytes(&self) -> u64 {
        let bytes = self.segments.iter().map(SegmentSpec::bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Most bytes that a weight of `elements` may take: a packed weight larger than twice its f64 is a mistake.
    fn most_bytes(elements: u64) -> u64 {
        elements.saturating_mul(16).saturating_add(1 << 16)
    }

    /// Checks that the description agrees with itself.
    ///
    /// # Errors
    /// `INVALID`, naming what does not fit.
    pub fn validate(&self) -> Result<()> {
        let fail = |what: String| {
            Err(PluginError::invalid(format!(
                "format of quantizer `{}`: {what}",
                self.quantizer
            )))
        };
        let elements = match self.shape[0].checked_mul(self.shape[1]) {
            Some(elements) if elements > 0 => elements,
            _ => {
                return fail(format!(
                    "shape {:?} has no elements or too many",
                    self.shape
                ));
            }
        };
        if self.segments.len() > Self::MOST_SEGMENTS {
            return fail(format!(
                "{} segments, expected at most {}",
                self.segments.len(),
                Self::MOST_SEGMENTS
            ));
        }
        if let Some(spec) = self.segments.iter().find(|spec| spec.dtype.bytes() == 0) {
            return fail(format!(
                "segment `{}` is of {}, which has no size",
                spec.name, spec.dtype
            ));
        }
        if self.bytes() > Self::most_bytes(elements) {
            return fail(format!(
                "{} bytes for the {elements} elements of {:?}, expected at most {}",
                self.bytes(),
                self.shape,
                Self::most_bytes(elements)
            ));
        }
        let segment =
            |index: usize, least: u64, dtypes: &[DType], what: &str| match self.segments.get(index)
            {
                Some(spec) if spec.len < least => fail(format!(
                    "{what}: segment `{}` holds {} {}, expected at least {least}",
                    spec.name, spec.len, spec.dtype
                )),
                Some(spec) if !dtypes.contains(&spec.dtype) => fail(format!(
                    "{what}: segment `{}` is of {}, expected {}",
                    spec.name,
                    spec.dtype,
                    dtypes
                        .iter()
                        .map(|dtype| dtype.name())
                        .collect::<Vec<_>>()
                        .join(", ")
                )),
                Some(_) => Ok(()),
                None => fail(format!("{what}: segment {index} does not exist")),
            };
        let finite = |table: &[f32], what: &str| match table.iter().position(|x| !x.is_finite()) {
            None => Ok(()),
            Some(at) => fail(format!("{what}: value {at} of its table is {}", table[at])),
        };
        const NUMBERS: [DType; 3] = [DType::F32, DType::BF16, DType::F16];
        let values = |values: &BlockValues, count: u64, what: &str| match values {
            BlockValues::Stored { segment: index } => segment(*index, count, &NUMBERS, what),
            BlockValues::Nested {
                codes,
                table,
                scales,
                size,
                offset,
            } => {
                if table.len() != 256 || *size == 0 {
                    return fail(format!(
                        "{what}: a nested table has 256 values and a block size"
                    ));
                }
                finite(table, what)?;
                segment(*codes, count, &[DType::U8], what)?;
                segment(*scales, count.div_ceil(*size), &[DType::F32], what)?;
                segment(*offset, 1, &[DType::F32], what)
            }
        };
        let packed = |codes: &Codes| {
            if ![1, 2, 4, 8].contains(&codes.bits) {
                return fail(format!(
                    "codes of {} bits; 1, 2, 4 and 8 can be packed",
                    codes.bits
                ));
            }
            segment(
                codes.segment,
                elements.div_ceil(8 / u64::from(codes.bits)),
                &[DType::U8],
                "codes",
            )
        };
        let mapped = |blocks: &BlockMap| match blocks {
            BlockMap::Flat { size: 0 } | BlockMap::Strided { count: 0 } => {
                fail("a block map without blocks".to_owned()).map(|()| 0)
            }
            _ => Ok(blocks.count(self.shape)),
        };
        match &self.decoding {
            Decoding::Callback => Ok(()),
            Decoding::Codebook {
                codes,
                table,
                blocks,
                scale,
            } => {
                packed(codes)?;
                if table.len() != 1 << codes.bits {
                    return fail(format!(
                        "a codebook of {} values for {} bits",
                        table.len(),
                        codes.bits
                    ));
                }
                finite(table, "codes")?;
                values(scale, mapped(blocks)?, "scale")
            }
            Decoding::Affine {
                codes,
                blocks,
                scale,
                zero,
            } => {
                packed(codes)?;
                let count = mapped(blocks)?;
                values(scale, count, "scale")?;
                values(zero, count, "zero")
            }
        }
    }

    /// The reference decoder: element by element from the description, the oracle of every kernel.
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
                let code = code(segments[codes.segment], codes, flat);
                let scale = self.block_value(segments, scale, blocks.block(row, col, width));
                Ok(table[code as usize] * scale)
            }
            Decoding::Affine {
                codes,
                blocks,
                scale,
                zero,
            } => {
                let code = code(segments[codes.segment], codes, flat);
                let block = blocks.block(row, col, width);
                let zero = self.block_value(segments, zero, block);
                Ok((code as f32 - zero) * self.block_value(segments, scale, block))
            }
            Decoding::Callback => Err(PluginError::unsupported(format!(
                "quantizer `{}` describes no decoding: call its `decode`",
                self.quantizer
            ))),
        }
    }

    /// The number of block `block`, as [`BlockValues`] states it.
    pub fn block_value(&self, segments: &[&[u8]], values: &BlockValues, block: u64) -> f32 {
        match values {
            BlockValues::Stored { segment } => {
                float(segments[*segment], self.segments[*segment].dtype, block)
            }
            BlockValues::Nested {
                codes,
                table,
                scales,
                size,
                offset,
            } => {
                let code = segments[*codes][block as usize];
                let scale = float(segments[*scales], DType::F32, block / size);
                table[code as usize] * scale + float(segments[*offset], DType::F32, 0)
            }
        }
    }
}

/// Code number `flat` of a packed segment.
fn code(bytes: &[u8], codes: &Codes, flat: u64) -> u8 {
    let per_byte = 8 / u64::from(codes.bits);
    let slot = (flat % per_byte) as u32;
    let shift = match codes.order {
        BitOrder::HighFirst => 8 - codes.bits * (slot + 1),
        BitOrder::LowFirst => codes.bits * slot,
    };
    let mask = ((1u32 << codes.bits) - 1) as u8;
    (bytes[(flat / per_byte) as usize] >> shift) & mask
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

#[cfg(test)]
mod tests {
    use super::*;

    fn two_bit() -> Format {
        Format {
            quantizer: "test".into(),
            shape: [2, 3],
            segments: vec![
                SegmentSpec::new("codes", DType::U8, 2),
                SegmentSpec::new("scale", DType::F32, 2),
                SegmentSpec::new("zero", DType::BF16, 2),
            ],
            decoding: Decoding::Affine {
                codes: Codes {
                    segment: 0,
                    bits: 2,
                    order: BitOrder::LowFirst,
                },
                blocks: BlockMap::Rows,
                scale: BlockValues::Stored { segment: 1 },
                zero: BlockValues::Stored { segment: 2 },
            },
        }
    }

    #[test]
    fn affine_codes_follow_the_formula() {
        let format = two_bit();
        format.validate().expect("it fits");
        let scale: Vec<u8> = [0.5f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let zero: Vec<u8> = [1.0f32, 0.0]
            .iter()
            .flat_map(|x| half::bf16::from_f32(*x).to_le_bytes())
            .collect();
        let mut out = [0.0; 6];
        let segments: [&[u8]; 3] = [&[0b11_10_01_00, 0b00_00_01_00], &scale, &zero];
        format
            .decode(&segments, 0..2, 0..3, &mut out)
            .expect("described");
        assert_eq!(out, [-0.5, 0.0, 0.5, 6.0, 0.0, 2.0]);
        let mut column = [0.0; 2];
        format
            .decode(&segments, 0..2, 2..3, &mut column)
            .expect("described");
        assert_eq!(column, [0.5, 2.0]);
    }

    #[test]
    fn a_short_segment_is_refused_by_name() {
        let mut format = two_bit();
        format.segments[1].len = 1;
        let message = format
            .validate()
            .expect_err("one scale for two rows")
            .message;
        assert!(
            message.contains("`scale` holds 1 f32, expected at least 2"),
            "{message}"
        );
    }

    #[test]
    fn absurd_sizes_and_tables_are_refused_before_anything_is_allocated() {
        let refused = |change: fn(&mut Format)| {
            let mut format = two_bit();
            change(&mut format);
            format.validate().expect_err("absurd").message
        };
        let message = refused(|format| format.segments[0].len = u64::MAX);
        assert!(message.contains("expected at most"), "{message}");
        let message = refused(|format| format.segments[2].len = 1 << 40);
        assert!(message.contains("expected at most"), "{message}");
        let message = refused(|format| format.shape = [u64::MAX, 2]);
        assert!(message.contains("too many"), "{message}");
        let message = refused(|format| format.segments[1].dtype = DType::I32);
        assert!(message.contains("`scale` is of i32"), "{message}");
        let message = refused(|format| {
            let spec = format.segments[0].clone();
            format.segments.extend(vec![spec; 16]);
        });
        assert!(message.contains("19 segments"), "{message}");
    }
}
