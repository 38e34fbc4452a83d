//! The largest error that a decoded weight may have, given the bits that it takes.
//!
//! A format described as data states its own resolution. Half the widest gap between neighbouring
//! values, relative to the block's largest magnitude, bounds the error of an encoder that rounds to
//! nearest. Scales stored in fewer bits add the error of the scale. A format that only its
//! component can decode is compared with what its bits could achieve.

use espalier_interface::DType;
use espalier_interface::Quantizer;
use espalier_interface::format::{BlockMap, BlockValues, Decoding, Format};

use super::case::{Case, each, place};
use crate::checked::{Checked, Fault, within};
use crate::{Subject, Suite, weights};

/// Tolerance for rounding, and for encoders whose search is not exhaustive.
const SLACK: f64 = 1.05;
/// Relative error of a scale stored in 16 bits: 2^-8, the rounding of bf16.
const SHORT_SCALE: f64 = 1.0 / 256.0;
/// For a format that only its component can decode: the largest root mean square error on normal
/// weights, times `2^bits - 1`, in units of their standard deviation. Absmax over 4096 weights with
/// even steps needs 2.2; the rest allows for other data among its bytes.
const CALLBACK_FACTOR: f64 = 4.0;
/// Largest relative error of any format; misplaced codes give 1.4.
const WORST: f64 = 0.9;

pub fn check(subject: &Subject<'_, dyn Quantizer>, suite: &mut Suite) {
    suite.check(
        "error.blocks",
        "in weights whose blocks have two values each, of other sizes than their neighbours', every element is near its own",
        || each(subject, |case| blocks(subject, case)),
    );
    suite.check(
        "error.bound",
        "each row of normal weights is as near as the format's bits allow",
        || each(subject, |case| normal(subject, case)),
    );
}

/// Magnitudes of neighbouring blocks, so that a scale taken from the next block shows.
fn size_of(block: u64) -> f32 {
    [1.0, 4.0, 16.0, 2.0, 8.0][(block % 5) as usize]
}

const LARGEST: f64 = 16.0;

fn blocks(subject: &Subject<'_, dyn Quantizer>, case: &Case<'_>) -> Checked {
    let resolution = Resolution::of(&case.format);
    let cols = case.shape[1];
    let weight = match resolution {
        Some(resolution) => weights::signs(
            case.shape,
            |row, col| resolution.blocks.block(row, col, cols),
            size_of,
        ),
        // The blocks are not known, so all have one magnitude.
        None if bits_of_large(subject, case)? < 3.0 => {
            let why = "with fewer than 3 bits and no description, single elements are not bound";
            return Err(Fault::Skipped(why.to_owned()));
        }
        None => weights::signs(case.shape, |_, _| 0, |_| 1.0),
    };
    let (_, decoded) = case.round_trip(&weight)?;
    for (at, (&found, &expected)) in decoded.iter().zip(&weight).enumerate() {
        let size = f64::from(expected.abs());
        let bound = match resolution {
            Some(resolution) => resolution.bound(size, 2.0 * size, LARGEST),
            None => WORST * size,
        };
        let error = (f64::from(found) - f64::from(expected)).abs();
        if !within(error, bound) {
            return Err(Fault::Failed(format!(
                "element {}: expected {expected} within {bound:.4}, found {found}",
                place(at, cols)
            )));
        }
    }
    Ok(())
}

fn normal(subject: &Subject<'_, dyn Quantizer>, case: &Case<'_>) -> Checked {
    let weight = weights::gaussian(case.shape, 1.0, 14);
    let (_, decoded) = case.round_trip(&weight)?;
    let bounds = bounds(subject, case, &weight)?;
    let cols = case.shape[1] as usize;
    // Narrow rows are taken together, since one has too few numbers for a mean.
    let run = cols * 64usize.div_ceil(cols);
    let runs = decoded
        .chunks(run)
        .zip(weight.chunks(run))
        .zip(bounds.chunks(run));
    for (index, ((found, expected), bounds)) in runs.enumerate() {
        let errors = found.iter().zip(expected);
        let error = rms(errors.map(|(f, e)| f64::from(*f) - f64::from(*e)));
        let bound = rms(bounds.iter().copied());
        if !within(error, bound) {
            let row = index * run / cols;
            return Err(Fault::Failed(format!(
                "from row {row} on: a root mean square error of {error:.4} standard deviations, expected at most \
                 {bound:.4} of {:.2} bits a weight",
                bits(&case.format)
            )));
        }
    }
    Ok(())
}

/// The bound of every element of a weight.
fn bounds(
    subject: &Subject<'_, dyn Quantizer>,
    case: &Case<'_>,
    weight: &[f32],
) -> Checked<Vec<f64>> {
    let Some(resolution) = Resolution::of(&case.format) else {
        let large = bits_of_large(subject, case)?;
        let bound = WORST.min(CALLBACK_FACTOR / (large.exp2() - 1.0));
        return Ok(vec![bound; weight.len()]);
    };
    let cols = case.shape[1];
    let block_of = |at: usize| {
        let (row, col) = (at as u64 / cols, at as u64 % cols);
        resolution.blocks.block(row, col, cols) as usize
    };
    let count = resolution.blocks.count(case.shape) as usize;
    let mut ends = vec![[0.0f64; 2]; count];
    for (at, &x) in weight.iter().enumerate() {
        let [low, high] = &mut ends[block_of(at)];
        *low = low.min(f64::from(x));
        *high = high.max(f64::from(x));
    }
    let size = |[low, high]: [f64; 2]| high.max(-low);
    let largest = ends.iter().fold(0.0f64, |most, &end| most.max(size(end)));
    let bound = |at: usize| {
        let end = ends[block_of(at)];
        resolution.bound(size(end), end[1] - end[0], largest)
    };
    Ok((0..weight.len()).map(bound).collect())
}

fn rms(numbers: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = numbers.len() as f64;
    (numbers.map(|x| x * x).sum::<f64>() / count).sqrt()
}

/// Bits per element of a large weight. Small ones take more without being more exact: a codebook,
/// or what else there is once a weight, counts there as if it were codes.
fn bits_of_large(subject: &Subject<'_, dyn Quantizer>, case: &Case<'_>) -> Checked<f64> {
    let quantizer = subject.make(&case.set.options, crate::Threads::new(1))?;
    let large = quantizer.format([512, 4096]);
    Ok(large.map_or_else(|_| bits(&case.format), |format| bits(&format)))
}

/// Bits per element, all segments together.
fn bits(format: &Format) -> f64 {
    8.0 * format.bytes() as f64 / (format.shape[0] * format.shape[1]) as f64
}

/// The resolution of a described format.
#[derive(Clone, Copy)]
struct Resolution {
    blocks: BlockMap,
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
    /// None for a format that describes no decoding, or one of steps.
    fn of(format: &Format) -> Option<Self> {
        match &format.decoding {
            // Steps may change values in any way: what the bits could achieve bounds them too.
            Decoding::Steps { .. } | Decoding::Callback => None,
            Decoding::Codebook {
                table,
                blocks,
                scale,
                ..
            } => {
                let (stored, nested) = storage(format, scale);
                let half_gap = half_gap(table);
                let of_span = false;
                Some(Resolution {
                    blocks: *blocks,
                    half_gap,
                    of_span,
                    stored,
                    nested,
                })
            }
            Decoding::Affine {
                codes,
                blocks,
                scale,
                zero,
            } => {
                let steps = f64::from((1u32 << codes.bits) - 1);
                let (stored, nested) = storage(format, scale);
                let (zero_stored, zero_nested) = storage(format, zero);
                Some(Resolution {
                    blocks: *blocks,
                    // An integer zero point shifts the range by up to half a step more.
                    half_gap: 1.0 / steps,
                    of_span: true,
                    stored: 2.0 * (stored + zero_stored),
                    nested: 2.0 * (nested + zero_nested),
                })
            }
        }
    }

    fn bound(&self, size: f64, span: f64, largest: f64) -> f64 {
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

/// The error of a stored number per block: relative to the number, and to the largest of them.
fn storage(format: &Format, values: &BlockValues) -> (f64, f64) {
    match values {
        BlockValues::Stored { segment } if format.segments[*segment].dtype == DType::F32 => {
            (0.0, 0.0)
        }
        BlockValues::Stored { .. } => (SHORT_SCALE, 0.0),
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
    use super::*;

    #[test]
    fn the_gap_of_a_table_is_the_widest_one() {
        assert_eq!(half_gap(&[-1.0, 0.0, 1.0, 0.5]), 0.5);
        assert_eq!(half_gap(&[-2.0, 2.0, -1.0, 0.0, 1.0]), 0.25);
        let even: Vec<f32> = (0..16).map(|code| code as f32 / 7.5 - 1.0).collect();
        assert!((half_gap(&even) - 1.0 / 15.0).abs() < 1e-6);
        assert_eq!(half_gap(&[-0.5, 1.0]), 0.75);
    }

    #[test]
    fn the_gap_of_scales_is_relative_to_them() {
        assert_eq!(relative_gap(&[1.0, 2.0, 4.0], false), (0.5, 0.0));
        let scaled = [-512.0, 0.0, 1.0, 64.0, 80.0, 512.0];
        assert_eq!(relative_gap(&scaled, true), (216.0 / 80.0, 0.5));
    }
}
