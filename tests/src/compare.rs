//! Two sequences of numbers -> their relative distance.

/// `|found - expected| / |expected|` in the Euclidean norm.
///
/// # Panics
/// If the lengths differ.
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
