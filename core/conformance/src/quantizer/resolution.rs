//! A format described as data -> how near its values are to any weight, relative to its blocks.
//!
//! Half the widest gap between neighbouring values, relative to the block's largest magnitude,
//! bounds the error of an encoder that rounds to nearest. Scales stored in fewer bits add the error
//! of the scale.

use espalier_interface::DType;
use espalier_interface::format::{BlockMap, BlockValues, Format, Step, ValueSource};

/// Tolerance for rounding, and for encoders whose search is not exhaustive.
const SLACK: f64 = 1.05;
/// Relative error of a scale stored in 16 bits: 2^-8, the rounding of bf16.
const SHORT_SCALE: f64 = 1.0 / 256.0;

/// The resolution of a described format.
#[derive(Clone, Copy)]
pub struct Resolution {
    /// The elements that share a scale.
    pub blocks: BlockMap,
    /// Half the widest gap between values, relative to the block's largest magnitude (to its span,
    /// for an affine format).
    half_gap: f64,
    /// Whether `half_gap` is relative to the span.
    of_span: bool,
    /// Error of the stored scale, relative to the block's largest magnitude.
    stored: f64,
    /// Error of double quantization, relative to the largest magnitude of any block.
    nested: f64,
}

impl Resolution {
    /// None for a format that describes no decoding, or whose values follow from numbers that the
    /// encoder chooses, as those of codebooks, or are rotated: what its bits could achieve bounds
    /// it.
    ///
    /// Elements share a scale in the blocks of the step `Times` with the most of them; factors of
    /// columns besides are the encoder's choice.
    pub fn of(format: &Format) -> Option<Self> {
        let (source, steps) = format.stages()?;
        let is_shift = |step: &Step| matches!(step, Step::Plus { .. } | Step::Minus { .. });
        let is_rotation = |step: &Step| matches!(step, Step::Hadamard { .. });
        let of_span = steps.iter().any(is_shift);
        let table = match source {
            ValueSource::Vectors { .. } | ValueSource::SharedVectors { .. } => return None,
            // The error of an element follows from those of all in its run.
            _ if steps.iter().any(is_rotation) => return None,
            ValueSource::Table { table, .. } => table,
            ValueSource::Count { codes } => {
                (0..1u32 << codes.bits).map(|code| code as f32).collect()
            }
        };
        let scales = steps.iter().filter_map(|step| match step {
            Step::Times { blocks, .. } => Some(*blocks),
            _ => None,
        });
        let count = |blocks: &BlockMap| match blocks {
            BlockMap::Columns => 0,
            _ => blocks.count(format.shape),
        };
        let blocks = scales.max_by_key(count)?;
        let numbers = steps.iter().map(|step| match step {
            Step::Outliers { values, .. } => {
                storage(format, &BlockValues::Stored { segment: *values })
            }
            Step::Times { values, .. } | Step::Plus { values, .. } | Step::Minus { values, .. } => {
                storage(format, values)
            }
            Step::Hadamard { .. } => (0.0, 0.0),
        });
        let (stored, nested) = numbers.fold((0.0, 0.0), |sums, (stored, nested)| {
            (sums.0 + stored, sums.1 + nested)
        });
        // Of values that are shifted, the span has an error at both ends.
        let ends = if of_span { 2.0 } else { 1.0 };
        Some(Resolution {
            blocks,
            half_gap: if of_span {
                gap_of_span(&table)
            } else {
                half_gap(&table)
            },
            of_span,
            stored: ends * stored,
            nested: ends * nested,
        })
    }

    /// The largest error of an element of a block of this largest magnitude and span, where
    /// `largest` is the largest magnitude of all.
    pub fn bound(&self, size: f64, span: f64, largest: f64) -> f64 {
        let unit = if self.of_span { span } else { size };
        SLACK * (self.half_gap * unit + self.stored * size + self.nested * largest)
    }
}

/// Half the widest gap between neighbours of a table, or beyond its shorter end, relative to its
/// largest magnitude.
fn half_gap(table: &[f32]) -> f64 {
    let mut values: Vec<f64> = table.iter().map(|&x| f64::from(x)).collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[0], values[values.len() - 1]);
    let largest = high.max(-low);
    let inner = values.windows(2).map(|pair| (pair[1] - pair[0]) / 2.0);
    let ends = [largest - high, largest + low];
    inner.chain(ends).fold(0.0, f64::max) / largest.max(f64::MIN_POSITIVE)
}

/// The widest gap between neighbours of a table, relative to its span: half of it for the values
/// and half for the shift, which may be whole.
fn gap_of_span(table: &[f32]) -> f64 {
    let mut values: Vec<f64> = table.iter().map(|&x| f64::from(x)).collect();
    values.sort_by(f64::total_cmp);
    let span = values[values.len() - 1] - values[0];
    let gaps = values.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.fold(0.0, f64::max) / span.max(f64::MIN_POSITIVE)
}

/// The error of a stored number per block: relative to the number, and to the largest of them.
fn storage(format: &Format, values: &BlockValues) -> (f64, f64) {
    match values {
        BlockValues::Stored { segment } => of_dtype(format.segments[*segment].dtype),
        BlockValues::Interleaved { dtype, .. } => of_dtype(*dtype),
        BlockValues::Product {
            values, factors, ..
        } => {
            let of_values = match &**values {
                // The largest number of a group has the largest code.
                BlockValues::Table { table, .. } => (0.0, gap_of_span(table) / 2.0),
                values => storage(format, values),
            };
            let of_factors = storage(format, factors);
            (of_values.0 + of_factors.0, of_values.1 + of_factors.1)
        }
        BlockValues::Nested { table, .. } => (0.0, half_gap(table)),
        // The 255 steps of 8 bits cover the span of a group's numbers and zero.
        BlockValues::Affine { .. } => (0.0, 2.0 * 0.5 / 255.0),
        BlockValues::Table {
            codes,
            table,
            not_numbers,
            scale,
        } => {
            let numbers = table.iter().zip(0u32..).filter_map(|(&x, code)| {
                let is_number = !not_numbers.iter().any(|&not| u32::from(not) == code);
                is_number.then_some(f64::from(x))
            });
            let mut numbers: Vec<f64> = numbers.collect();
            numbers.sort_by(f64::total_cmp);
            let counts = (0..1u32 << codes.bits).map(f64::from);
            if scale.is_none() && numbers.iter().copied().eq(counts) {
                // Whole zero points, which the resolution allows for.
                return (0.0, 0.0);
            }
            relative_gap(&numbers, scale.is_some())
        }
    }
}

/// The error of a number of that dtype, relative to it.
fn of_dtype(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F32 => (0.0, 0.0),
        _ => (SHORT_SCALE, 0.0),
    }
}

/// Numbers of blocks this much smaller than the largest are bound by its size.
const SMALL_BLOCK: f64 = 1.0 / 256.0;

/// Half the widest gap between positive neighbours of sorted `numbers`, relative to the lower one.
/// Of those with a scale, which brings the largest block to the largest number, small ones are left
/// out; their gaps are relative to the largest number.
fn relative_gap(numbers: &[f64], is_scaled: bool) -> (f64, f64) {
    let largest = numbers.last().copied().unwrap_or_default();
    let least = if is_scaled {
        largest * SMALL_BLOCK
    } else {
        f64::MIN_POSITIVE
    };
    let pairs = || numbers.windows(2).map(|pair| (pair[0], pair[1]));
    let large = pairs().filter(|&(low, _)| low >= least);
    let relative = large.map(|(low, high)| (high - low) / 2.0 / low);
    let small = pairs().filter(|&(low, _)| is_scaled && low < least);
    let absolute = small.map(|(low, high)| (high - low) / 2.0 / largest);
    (relative.fold(0.0, f64::max), absolute.fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use espalier_interface::format::{BitOrder, Codes, Decoding, SegmentSpec};

    use super::*;

    #[test]
    fn the_gap_of_a_table_is_the_widest_one() {
        assert_eq!(half_gap(&[-1.0, 0.0, 1.0, 0.5]), 0.5);
        assert_eq!(half_gap(&[-2.0, 2.0, -1.0, 0.0, 1.0]), 0.25);
        let even: Vec<f32> = (0..16).map(|code| code as f32 / 7.5 - 1.0).collect();
        assert!((half_gap(&even) - 1.0 / 15.0).abs() < 1e-6);
        assert_eq!(half_gap(&[-0.5, 1.0]), 0.75);
    }

    /// Int4's format, as affine and in steps, with factors of columns and outliers.
    #[test]
    fn steps_have_the_resolution_of_the_short_form_that_they_write_out() {
        let segment = |name: &str, dtype| SegmentSpec::new(name, dtype, 64);
        let codes = Codes {
            segment: 0,
            bits: 4,
            order: BitOrder::LowFirst,
        };
        let (blocks, scale) = (
            BlockMap::Flat { size: 8 },
            BlockValues::Stored { segment: 1 },
        );
        let affine = Format {
            quantizer: "q".to_owned(),
            shape: [8, 16],
            segments: vec![
                segment("codes", DType::U8),
                segment("scales", DType::F16),
                segment("factors", DType::F32),
                segment("places", DType::U8),
                segment("outliers", DType::F32),
            ],
            decoding: Decoding::Affine {
                codes,
                blocks,
                scale: scale.clone(),
                zero: scale,
            },
        };
        let (source, mut steps) = affine.stages().expect("described");
        steps.push(Step::Times {
            blocks: BlockMap::Columns,
            values: BlockValues::Stored { segment: 2 },
        });
        steps.push(Step::Outliers {
            size: 16,
            count: 1,
            positions: 3,
            values: 4,
        });
        let in_steps = Format {
            decoding: Decoding::Steps { source, steps },
            ..affine.clone()
        };
        in_steps.validate().expect("it agrees with itself");
        let [short, long] = [&affine, &in_steps].map(|format| {
            let resolution = Resolution::of(format).expect("it is described");
            (resolution.blocks, resolution.bound(1.0, 1.5, 2.0))
        });
        assert_eq!(short, long);
    }

    #[test]
    fn the_gap_of_scales_is_relative_to_them() {
        assert_eq!(relative_gap(&[1.0, 2.0, 4.0], false), (0.5, 0.0));
        let scaled = [-512.0, 0.0, 1.0, 64.0, 80.0, 512.0];
        assert_eq!(relative_gap(&scaled, true), (216.0 / 80.0, 0.5));
    }
}
