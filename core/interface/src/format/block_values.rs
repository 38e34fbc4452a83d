//! The number of each block of a weight: how it is stored, and checks of that.

use serde::{Deserialize, Serialize};

use super::validate::NUMBERS;
use super::{BitOrder, BlockMap, Codes, Format};
use crate::{DType, Result};

/// A number for every block, as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockValues {
    /// Stored as they are, one per element of the segment (f32, bf16 or f16).
    Stored {
        /// Index of the segment.
        segment: usize,
    },
    /// Stored between other bytes of a segment of u8, such as the codes of their blocks: the number
    /// of block `b` has the little-endian bytes from `start + b bytes` on, at any alignment. The
    /// blocks of GGUF's files are such.
    Interleaved {
        /// Index of the segment.
        segment: usize,
        /// What the bytes are of: f32, bf16 or f16.
        dtype: DType,
        /// Byte of the segment at which the number of block 0 begins.
        #[serde(default)]
        start: u64,
        /// Bytes from the beginning of a number to that of the next, at least those of `dtype`.
        bytes: u64,
    },
    /// The number of the block times that of its group: `values[b] * factors[b / size]`, in f32
    /// (the scales and minima of GGUF's q4_K). Both are `Stored`, `Interleaved` or a `Table`.
    Product {
        /// A number for each block.
        values: Box<BlockValues>,
        /// A number for each group of `size` blocks.
        factors: Box<BlockValues>,
        /// Blocks of a group.
        size: u64,
    },
    /// Quantized again (double quantization): `table[code[b]] * scale[b / size] + offset`.
    Nested {
        /// Index of the segment of 8-bit codes, one per block.
        codes: usize,
        /// The 256 values of the codes.
        table: Vec<f32>,
        /// Index of the segment of f32 scales, one per `size` blocks.
        scales: usize,
        /// Blocks per scale.
        size: u64,
        /// Index of the segment of one f32.
        offset: usize,
    },
    /// Quantized again, uniformly: `(code[b] - zero[g]) * scale[g]`, in f32, where `g` is the group
    /// of block `b` (HQQ's quantized zeros and scales).
    Affine {
        /// Index of the segment of 8-bit codes, one per block.
        codes: usize,
        /// How blocks form groups, as if the blocks were a weight of one row: `Flat` and `Strided`
        /// groups, or `Rows` for one group of all.
        groups: BlockMap,
        /// Index of the segment of scales, one per group (f32, bf16 or f16).
        scales: usize,
        /// Index of the segment of zero points, one per group (f32, bf16 or f16).
        zeros: usize,
    },
    /// Codes that stand for numbers: `table[code[b]]`, in f32, times or over one number of the
    /// whole weight where `scale` names it. Scales in E8M0 or E4M3 and packed zero points are
    /// such.
    Table {
        /// The codes, one per block in the order of blocks: of at most 8 bits, in any order but
        /// `Split`.
        codes: Codes,
        /// The `2^bits` values of the codes.
        table: Vec<f32>,
        /// Codes that stand for no number, such as the NaN of E8M0: of 8 bits only, and not in
        /// rows. The host refuses a weight that has one, so that their values in the table are
        /// never used.
        #[serde(default)]
        not_numbers: Vec<u8>,
        /// A number of the whole weight.
        #[serde(default)]
        scale: Option<TableScale>,
    },
}

impl BlockValues {
    /// The numbers that make them: the two of a product, else themselves.
    pub fn parts(&self) -> Vec<&BlockValues> {
        match self {
            BlockValues::Product {
                values, factors, ..
            } => vec![values, factors],
            values => vec![values],
        }
    }
}

/// The number of a whole weight by which the values of a table are scaled, in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableScale {
    /// `table[code] * number`.
    Times {
        /// Index of the segment of one f32.
        segment: usize,
    },
    /// `table[code] / number`, rounded once (the global scale of NVFP4 in compressed-tensors).
    Over {
        /// Index of the segment of one f32.
        segment: usize,
    },
}

impl TableScale {
    /// Index of the segment of one f32.
    pub fn segment(self) -> usize {
        match self {
            TableScale::Times { segment } | TableScale::Over { segment } => segment,
        }
    }

    /// The scaled value.
    #[inline]
    pub fn apply(self, value: f32, number: f32) -> f32 {
        match self {
            TableScale::Times { .. } => value * number,
            TableScale::Over { .. } => value / number,
        }
    }
}

impl Format {
    /// Checks the numbers of `count` blocks.
    pub(super) fn check_values(&self, values: &BlockValues, count: u64, what: &str) -> Result<()> {
        match values {
            BlockValues::Stored { segment } => self.check_segment(*segment, count, &NUMBERS, what),
            BlockValues::Interleaved {
                segment,
                dtype,
                start,
                bytes,
            } => self.check_interleaved((*segment, *dtype), [*start, *bytes], count, what),
            BlockValues::Product { size, .. } => self.check_product(values, *size, count, what),
            BlockValues::Nested {
                codes,
                table,
                scales,
                size,
                offset,
            } => {
                if table.len() != 256 || *size == 0 {
                    return self.fail(format!(
                        "{what}: a nested table has 256 values and a block size"
                    ));
                }
                self.check_finite(table, what)?;
                self.check_segment(*codes, count, &[DType::U8], what)?;
                self.check_segment(*scales, count.div_ceil(*size), &[DType::F32], what)?;
                self.check_segment(*offset, 1, &[DType::F32], what)
            }
            BlockValues::Affine {
                codes,
                groups,
                scales,
                zeros,
            } => {
                self.check_segment(*codes, count, &[DType::U8], what)?;
                let groups = self.count(*groups, [1, count])?;
                self.check_segment(*scales, groups, &NUMBERS, what)?;
                self.check_segment(*zeros, groups, &NUMBERS, what)
            }
            BlockValues::Table {
                codes,
                table,
                not_numbers,
                scale,
            } => {
                self.check_table_codes(codes, count, what)?;
                if table.len() != 1 << codes.bits {
                    return self.fail(format!(
                        "{what}: a table of {} values for {} bits",
                        table.len(),
                        codes.bits
                    ));
                }
                let are_bytes = codes.bits == 8 && !matches!(codes.order, BitOrder::Rows(_));
                if !not_numbers.is_empty() && !are_bytes {
                    return self.fail(format!(
                        "{what}: codes that stand for no number have 8 bits and no rows, found {} \
                         bits in order {:?}",
                        codes.bits, codes.order
                    ));
                }
                self.check_finite(table, what)?;
                match scale {
                    Some(scale) => self.check_segment(scale.segment(), 1, &[DType::F32], what),
                    None => Ok(()),
                }
            }
        }
    }

    /// Checks `count` numbers between other bytes.
    fn check_interleaved(
        &self,
        (segment, dtype): (usize, DType),
        [start, bytes]: [u64; 2],
        count: u64,
        what: &str,
    ) -> Result<()> {
        if !NUMBERS.contains(&dtype) {
            let names = NUMBERS.map(DType::name).join(", ");
            return self.fail(format!(
                "{what}: interleaved numbers of {dtype}, expected {names}"
            ));
        }
        let width = dtype.bytes();
        if bytes < width {
            return self.fail(format!(
                "{what}: numbers of {dtype} every {bytes} bytes, expected at least the {width} of \
                 each"
            ));
        }
        let before = count.saturating_sub(1).saturating_mul(bytes);
        let least = start.saturating_add(before).saturating_add(width);
        self.check_segment(segment, least, &[DType::U8], what)
    }

    /// Checks both numbers of a product for `count` blocks.
    fn check_product(
        &self,
        product: &BlockValues,
        size: u64,
        count: u64,
        what: &str,
    ) -> Result<()> {
        if size == 0 {
            return self.fail(format!(
                "{what}: a product with groups of 0 blocks, expected 1"
            ));
        }
        let counts = [count, count.div_ceil(size)];
        for (values, count) in product.parts().into_iter().zip(counts) {
            match values {
                BlockValues::Stored { .. }
                | BlockValues::Interleaved { .. }
                | BlockValues::Table { .. } => self.check_values(values, count, what)?,
                _ => {
                    return self.fail(format!(
                        "{what}: a product of numbers that are computed themselves, expected \
                         stored or interleaved ones or a table"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks codes of `count` blocks.
    fn check_table_codes(&self, codes: &Codes, count: u64, what: &str) -> Result<()> {
        if matches!(codes.order, BitOrder::Split { .. }) || codes.are_wide() {
            return self.fail(format!(
                "{what}: codes of {} bits in order {:?}; a table has codes of at most 8 bits, \
                 which are not split",
                codes.bits, codes.order
            ));
        }
        self.check_codes(codes, count)
    }
}
