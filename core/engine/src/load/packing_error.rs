//! A weight that was just encoded -> its relative error on some of its rows.

use espalier_interface::format::Decoding;
use serde::{Deserialize, Serialize};

use super::EncodedWeight;
use crate::Error;
use crate::decoder::{WeightWindow, decode};
use crate::error::of_param;

/// Rows that are decoded, at equal distances: enough for two digits.
const ROWS: u64 = 8;

/// How far a packed weight is from the dense one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PackingError {
    /// The weight.
    pub weight: String,
    /// The quantizer.
    pub quantizer: String,
    /// Elements of the weight.
    pub elements: u64,
    /// Root mean square of the error over that of the dense weight, on the sampled rows. None where
    /// these are all 0.
    pub error: Option<f64>,
}

impl PackingError {
    /// That of `weight`, on eight of its rows or all.
    ///
    /// # Errors
    /// `Error::Plugin` for a failing `decode` of a format without a description.
    pub(crate) fn sampled(weight: &EncodedWeight<'_>) -> Result<Self, Error> {
        let (format, quantizer) = (weight.format, weight.quantizer);
        let [rows, cols] = format.shape;
        let mut decoded = vec![0.0; cols as usize];
        let (mut error, mut size) = (0.0, 0.0);
        let count = ROWS.min(rows);
        for row in (0..count).map(|index| index * rows / count) {
            let (one, all) = (row..row + 1, 0..cols);
            if format.decoding == Decoding::Callback {
                let window = WeightWindow {
                    rows: one,
                    cols: all,
                };
                let plugin = quantizer.plugin.as_ref();
                let done = decode(plugin, weight.segments, format.shape, window, &mut decoded);
                done.map_err(|error| (error, "decode"))
            } else {
                let done = format.decode(weight.segments, one, all, &mut decoded);
                done.map_err(|error| (error, "format"))
            }
            .map_err(|(error, call)| quantizer.failed(call, of_param(weight.name, error)))?;
            let dense = &weight.dense[(row * cols) as usize..][..cols as usize];
            for (&found, &expected) in decoded.iter().zip(dense) {
                error += (f64::from(found) - f64::from(expected)).powi(2);
                size += f64::from(expected).powi(2);
            }
        }
        Ok(PackingError {
            weight: weight.name.to_owned(),
            quantizer: quantizer.identity.component.clone(),
            elements: rows * cols,
            error: (size > 0.0).then(|| (error / size).sqrt()),
        })
    }
}

/// The errors of a model's weights in a line: their root mean square by element, and the largest.
/// None without any.
pub fn told_errors(errors: &[PackingError]) -> Option<String> {
    let known = || errors.iter().filter_map(|one| Some((one, one.error?)));
    let (worst, largest) = known().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let elements: f64 = known().map(|(one, _)| one.elements as f64).sum();
    let squares: f64 = known()
        .map(|(one, error)| one.elements as f64 * error * error)
        .sum();
    let mean = (squares / elements).sqrt();
    let count = errors.len();
    let weights = if count == 1 {
        "weight is"
    } else {
        "weights are"
    };
    Some(format!(
        "{count} packed {weights} {mean:.4} of their size from the dense ones (root mean square, on \
         some rows), at most {largest:.4}: `{}`",
        worst.weight
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_mean_by_element_and_the_largest() {
        let error = |weight: &str, elements, error| PackingError {
            weight: weight.to_owned(),
            elements,
            error,
            ..PackingError::default()
        };
        let all = [
            error("a", 300, Some(0.1)),
            error("b", 100, Some(0.3)),
            error("zeros", 100, None),
        ];
        let told = told_errors(&all).expect("errors");
        assert!(told.starts_with("3 packed weights are 0.1732 of"), "{told}");
        assert!(told.ends_with("at most 0.3000: `b`"), "{told}");
        assert_eq!(told_errors(&[]), None);
        assert_eq!(told_errors(&all[2..]), None);
    }
}
