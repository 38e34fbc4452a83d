//! `sum_squares` and `first_not_finite` in f64.

/// `sum x^2`.
pub fn sum_squares(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum()
}

/// The index of the first NaN or infinity, or -1.
pub fn first_not_finite(x: &[f64]) -> f64 {
    let at = x.iter().position(|x| !x.is_finite());
    at.map_or(-1.0, |at| at as f64)
}
