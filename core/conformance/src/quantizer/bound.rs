//! The largest error that a decoded weight may have, given the bits that it takes.
//!
//! A format described as data states its own resolution ([`Resolution`]). A format that only its
//! component can decode is compared with what its bits could achieve.

use espalier_interface::Quantizer;
use espalier_interface::format::Format;

use super::case::{Case, each, place};
use super::resolution::Resolution;
use crate::checked::{Checked, Fault, within};
use crate::{Subject, Suite, weights};

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
