//! A weight that was just encoded -> whether it decodes to its dense values, checked once per
//! format on some rows.
//!
//! A quantizer may place its codes where its format does not say (shifted by a nibble, or with
//! other block boundaries). Training then runs without an error: every number is finite and wrong.
//! No encoder states its error bound, so the check uses a bound that no working format comes near:
//! an error as large as the weight.

use std::fmt;
use std::ops::Range;

use espalier_compile::params::Param;
use espalier_interface::Quantizer;
use espalier_interface::format::{Decoding, Format, ValueSource};
use espalier_system::files::hash_json;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::EncodedWeight;
use crate::Error;
use crate::decoder::{WeightWindow, decode};
use crate::error::of_param;

/// Elements that are decoded, rounded to whole rows.
const ELEMENTS: u64 = 1 << 16;
/// The largest relative error of a decoded weight. Codes of 2 bits have 0.5, misplaced codes 1.4.
const LARGEST_ERROR: f64 = 0.9;
/// The same for codes of one bit. HQQ's two values, at the ends of a group, have 1.06; misplaced
/// codes have 1.9.
const LARGEST_ERROR_OF_A_BIT: f64 = 1.5;
/// The largest relative difference between a format's description and the quantizer's `decode`.
const LARGEST_DIFFERENCE: f64 = 1e-3;

/// The check of the first weight of a format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DecodeCheck {
    /// The quantizer.
    pub quantizer: String,
    /// Hash of the format, the weight's shape aside.
    pub format: String,
    /// The weight.
    pub weight: String,
    /// The rows of it that were decoded.
    pub rows: Range<u64>,
    /// Root mean square of the error over that of the dense weight; none where it is not known.
    pub error: Option<f64>,
    /// The largest error that causes no warning.
    pub largest_error: f64,
    /// The relative difference between the decoding that the format describes, which kernels use,
    /// and the quantizer's `decode`. None where one of them is missing.
    pub difference: Option<f64>,
    /// Why the weight cannot be checked.
    pub not_checkable: Option<String>,
}

impl DecodeCheck {
    /// A weight that the files hold packed: there are no dense values to compare with.
    pub fn packed(param: &Param, format: &Format) -> Self {
        DecodeCheck {
            not_checkable: Some("the files hold it packed".to_owned()),
            ..DecodeCheck::unknown(&param.name, format)
        }
    }

    fn unknown(weight: &str, format: &Format) -> Self {
        DecodeCheck {
            quantizer: format.quantizer.clone(),
            format: format_hash(format),
            weight: weight.to_owned(),
            largest_error: largest_error(format),
            ..DecodeCheck::default()
        }
    }

    /// Whether the weight decodes to wrong values.
    pub fn is_wrong(&self) -> bool {
        self.error
            .is_some_and(|error| exceeds(error, self.largest_error))
            || self.differs()
    }

    fn differs(&self) -> bool {
        self.difference
            .is_some_and(|part| exceeds(part, LARGEST_DIFFERENCE))
    }
}

fn largest_error(format: &Format) -> f64 {
    match &format.decoding {
        Decoding::Codebook { codes, .. }
        | Decoding::Affine { codes, .. }
        | Decoding::Steps {
            source: ValueSource::Table { codes, .. } | ValueSource::Count { codes },
            ..
        } if codes.bits == 1 => LARGEST_ERROR_OF_A_BIT,
        _ => LARGEST_ERROR,
    }
}

/// A figure that is NaN exceeds every bound.
fn exceeds(figure: f64, most: f64) -> bool {
    figure.is_nan() || figure > most
}

impl fmt::Display for DecodeCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` as quantizer `{}` packs it",
            self.weight, self.quantizer
        )?;
        if let Some(why) = &self.not_checkable {
            return write!(f, " was not checked: {why}");
        }
        let (error, difference) = (self.error.unwrap_or(0.0), self.difference.unwrap_or(0.0));
        let rows = format_args!(
            "in rows {} to {}",
            self.rows.start,
            self.rows.end.saturating_sub(1)
        );
        if exceeds(error, self.largest_error) {
            let most = self.largest_error;
            return write!(
                f,
                " decodes with a relative error of {error:.2} {rows}; expected at most \
                 {most}, and codes in the wrong place give 1.4 or more"
            );
        }
        if self.differs() {
            return write!(
                f,
                " has a format description that disagrees with `decode`: the relative difference is {difference:.4} \
                 {rows}; expected at most {LARGEST_DIFFERENCE}, and kernels follow the description"
            );
        }
        write!(f, " decodes with an error of {error:.4} of its size {rows}")
    }
}

/// The checks of a loader, one a format.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DecodeChecks(Vec<DecodeCheck>);

impl DecodeChecks {
    /// Those made so far.
    pub fn made(&self) -> &[DecodeCheck] {
        &self.0
    }

    /// Records a weight that is packed in the files.
    pub fn packed(&mut self, param: &Param, format: &Format) {
        let hash = format_hash(format);
        if !self.0.iter().any(|check| check.format == hash) {
            self.0.push(DecodeCheck::packed(param, format));
        }
    }

    /// Decodes some rows of `weight`, if it is the first of its format.
    ///
    /// # Errors
    /// `Error::Plugin` for a failing `decode` of a format without a description.
    /// `Error::OutOfMemory`.
    pub fn look(&mut self, weight: &EncodedWeight<'_>) -> Result<(), Error> {
        if !self.is_new(weight.format) {
            return Ok(());
        }
        let found = check(weight)?;
        // A weight of zeros gives no answer; the next one may.
        self.0.retain(|check| check.format != found.format);
        self.0.push(found);
        Ok(())
    }

    /// Adds the checks of an earlier loader of the same weights.
    pub fn join(&mut self, earlier: Vec<DecodeCheck>) {
        self.0 = merged(std::mem::take(&mut self.0), earlier);
    }

    fn is_new(&self, format: &Format) -> bool {
        let hash = format_hash(format);
        let is_told = |check: &DecodeCheck| check.format == hash && check.error.is_some();
        !self.0.iter().any(is_told)
    }
}

/// The checks of two loaders of one model: for each format that of `first`, else that of `second`.
pub(super) fn merged(mut first: Vec<DecodeCheck>, second: Vec<DecodeCheck>) -> Vec<DecodeCheck> {
    for check in second {
        match first.iter_mut().find(|known| known.format == check.format) {
            None => first.push(check),
            Some(known) if known.error.is_none() && check.error.is_some() => *known = check,
            // A wrong weight is reported, whichever loader found it.
            Some(known) if check.is_wrong() && !known.is_wrong() => *known = check,
            Some(_) => {}
        }
    }
    first
}

/// Hash of the format's name and description, without sizes that follow from the shape.
fn format_hash(format: &Format) -> String {
    let elements = (format.shape[0] * format.shape[1]) as f64;
    let segments = format.segments.iter().map(|segment| {
        let share = match format.decoding {
            Decoding::Callback => (64.0 * segment.len as f64 / elements).round(),
            _ => 0.0,
        };
        json!([segment.name, segment.dtype, share])
    });
    let segments: Vec<_> = segments.collect();
    hash_json(&(&format.quantizer, &format.decoding, segments))
}

fn check(weight: &EncodedWeight<'_>) -> Result<DecodeCheck, Error> {
    let EncodedWeight {
        name,
        quantizer,
        format,
        dense,
        segments,
    } = *weight;
    let [rows, cols] = format.shape;
    let cols = 0..cols.min(ELEMENTS);
    let width = cols.end as usize;
    let rows = 0..(ELEMENTS / cols.end).clamp(1, rows);
    let stride = format.shape[1] as usize;
    let dense: Vec<f32> = dense
        .chunks(stride)
        .take(rows.end as usize)
        .flat_map(|row| &row[..width])
        .copied()
        .collect();
    let mut decoded = vec![0.0; dense.len()];
    let window = WeightWindow {
        rows: rows.clone(),
        cols: cols.clone(),
    };
    let plugin: &dyn Quantizer = quantizer.plugin.as_ref();
    let called = decode(plugin, segments, format.shape, window, &mut decoded);
    let mut found = DecodeCheck {
        rows: rows.clone(),
        ..DecodeCheck::unknown(name, format)
    };
    let size = mean_square(dense.iter().map(|&x| f64::from(x)));
    if format.decoding == Decoding::Callback {
        called.map_err(|error| quantizer.failed("decode", of_param(name, error)))?;
    } else {
        let by_call = decoded.clone();
        let described = format.decode(segments, rows, cols, &mut decoded);
        described.map_err(|error| quantizer.failed("format", of_param(name, error)))?;
        // Training does not need its `decode`; a failure there is reported where it is needed.
        if called.is_ok() && size > 0.0 {
            found.difference = Some((distance(&by_call, &decoded) / size).sqrt());
        }
    }
    if size > 0.0 {
        found.error = Some((distance(&decoded, &dense) / size).sqrt())
    } else {
        found.not_checkable = Some("its first rows are all 0".to_owned())
    }
    Ok(found)
}

fn distance(found: &[f32], expected: &[f32]) -> f64 {
    let both = found.iter().zip(expected);
    mean_square(both.map(|(&found, &expected)| f64::from(found) - f64::from(expected)))
}

fn mean_square(numbers: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = numbers.len() as f64;
    numbers.map(|x| x * x).sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(format: &str, error: Option<f64>) -> DecodeCheck {
        DecodeCheck {
            quantizer: "q".to_owned(),
            format: format.to_owned(),
            weight: "w".to_owned(),
            rows: 0..64,
            error,
            largest_error: LARGEST_ERROR,
            ..DecodeCheck::default()
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_figure() {
        let wrong = found("a", Some(1.414));
        assert!(wrong.is_wrong() && found("a", Some(f64::NAN)).is_wrong());
        assert!(
            wrong
                .to_string()
                .contains("relative error of 1.41 in rows 0 to 63"),
            "{wrong}"
        );
        assert!(!found("a", Some(0.6)).is_wrong() && !found("a", None).is_wrong());
        let otherwise = DecodeCheck {
            difference: Some(0.01),
            ..found("a", Some(0.1))
        };
        assert!(
            otherwise.is_wrong() && otherwise.to_string().contains("0.0100"),
            "{otherwise}"
        );
    }

    #[test]
    fn each_format_is_told_of_once() {
        let first = vec![found("a", None), found("b", Some(0.1))];
        let second = vec![
            found("a", Some(0.2)),
            found("b", Some(1.4)),
            found("c", None),
        ];
        let all = merged(first, second);
        let errors: Vec<_> = all.iter().map(|check| check.error).collect();
        assert_eq!(errors, [Some(0.2), Some(1.4), None]);
    }
}
