//! The bytes of an output and what it must hold -> whether each element is within its bound.

use espalier_interface::{DType, Operand};

use super::case::Near;
use super::numbers::decode;
use super::rounding::{LEAST, nearest, ulp};
use crate::checked::{Checked, Fault, within};

/// The error that is allowed at an element. It adds its bound, the least normal number, which a
/// device may take as zero, and one step of a dtype narrower than that of arithmetic.
fn allowed(dtype: DType, value: f64, bound: f64) -> f64 {
    let narrow = matches!(dtype, DType::BF16 | DType::F16);
    bound + LEAST + if narrow { ulp(dtype, value) } else { 0.0 }
}

/// Whether `found` is good enough.
fn is_met(dtype: DType, found: f64, value: f64, bound: f64) -> bool {
    if bound == 0.0 || !value.is_finite() {
        let value = nearest(dtype, value);
        return found == value || found.is_nan() && value.is_nan();
    }
    within((found - value).abs(), allowed(dtype, value, bound))
}

/// Checks output `index`.
///
/// # Errors
/// The element furthest outside its bound, and how many are.
pub fn check(index: usize, operand: &Operand, bytes: &[u8], expected: &Near) -> Checked {
    let found = decode(operand.dtype, bytes);
    let places = found.iter().zip(&expected.values).zip(&expected.bounds);
    let wrong: Vec<usize> = places
        .enumerate()
        .filter(|(_, ((found, value), bound))| !is_met(operand.dtype, **found, **value, **bound))
        .map(|(at, _)| at)
        .collect();
    let excess = |&at: &usize| {
        let (value, bound) = (expected.values[at], expected.bounds[at]);
        let excess = (found[at] - value).abs() / allowed(operand.dtype, value, bound);
        if excess.is_nan() {
            f64::INFINITY
        } else {
            excess
        }
    };
    let worst = wrong.iter().max_by(|a, b| excess(a).total_cmp(&excess(b)));
    let Some(&at) = worst else { return Ok(()) };
    let allowed = match expected.bounds[at] {
        0.0 => "exactly".to_owned(),
        bound => format!(
            "to {:.2e}",
            allowed(operand.dtype, expected.values[at], bound)
        ),
    };
    Err(Fault::Failed(format!(
        "output {index}, {}: element {at} of {} must be {:e} {allowed}, found {:e}; {} elements are \
         wrong",
        operand.dtype,
        found.len(),
        expected.values[at],
        found[at],
        wrong.len(),
    )))
}
