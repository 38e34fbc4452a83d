//! Checks of how the numbers of blocks are stored.

use super::super::{BitOrder, BlockValues, Codes, Format};
use super::NUMBERS;
use crate::{DType, Result};

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
