//! The bytes of an output and what it must hold -> whether each element is within its bound.

use espalier_interface::{DType, Operand};

use super::case::Near;
use super::numbers::decode;
use super::rounding::{LEAST, nearest, ulp};
use crate::checked::{Checked, Fault, ensure, within};
use crate::largest;

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
    if found.is_infinite() {
        // A result within the bound may be too large for the dtype.
        let most = value + allowed(dtype, value, bound).copysign(value);
        return found == nearest(dtype, most);
    }
    within((found - value).abs(), allowed(dtype, value, bound))
}

/// The largest error of an output that is good enough, as a share of what is allowed; 0 where only
/// exact numbers are.
pub fn share(dtype: DType, bytes: &[u8], expected: &Near) -> f64 {
    let places = decode(dtype, bytes).into_iter().zip(&expected.values);
    let shares = places.zip(&expected.bounds).map(|((found, value), bound)| {
        if *bound == 0.0 || !found.is_finite() {
            0.0
        } else {
            (found - value).abs() / allowed(dtype, *value, *bound)
        }
    });
    largest(shares.chain([0.0]))
}

/// The largest difference between an output of two devices, as a share of what both are allowed.
///
/// # Errors
/// The element that is furthest apart, where that is more.
pub fn apart(index: usize, dtype: DType, bytes: [&[u8]; 2], expected: &Near) -> Checked<f64> {
    let [a, b] = bytes.map(|bytes| decode(dtype, bytes));
    let mut most = 0.0;
    for (at, (a, b)) in a.iter().zip(&b).enumerate() {
        let (value, bound) = (expected.values[at], expected.bounds[at]);
        if a == b || a.is_nan() && b.is_nan() {
            continue;
        }
        let infinite = [a, b].into_iter().find(|x| x.is_infinite());
        let share = match infinite {
            Some(found) if is_met(dtype, *found, value, bound) => 0.0,
            _ if bound == 0.0 => f64::INFINITY,
            _ => (a - b).abs() / (2.0 * allowed(dtype, value, bound)),
        };
        ensure(within(share, 1.0), || {
            format!(
                "output {index}, {dtype}: element {at} is {a:e} and {b:e}, {share:.2} times what \
                 both are allowed beside {value:e}"
            )
        })?;
        most = f64::max(most, share);
    }
    Ok(most)
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
