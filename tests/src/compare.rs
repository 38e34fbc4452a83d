//! Two runs of numbers -> how far they are apart.

/// The largest absolute difference.
///
/// # Panics
/// Where the lengths differ.
pub fn largest_difference(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len(), "lengths");
    let differences = found.iter().zip(expected).map(|(f, e)| (f - e).abs());
    // A NaN must not be lost in `max`.
    differences.fold(
        0.0,
        |most: f64, d| if d > most || d.is_nan() { d } else { most },
    )
}

/// `|found - expected| / |expected|` in the Euclidean norm.
///
/// # Panics
/// Where the lengths differ.
pub fn relative_norm(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len(), "lengths");
    let square: f64 = found
        .iter()
        .zip(expected)
        .map(|(f, e)| (f - e) * (f - e))
        .sum();
    let norm: f64 = expected.iter().map(|e| e * e).sum();
    (square / norm.max(f64::MIN_POSITIVE)).sqrt()
}
