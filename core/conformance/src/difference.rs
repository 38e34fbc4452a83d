//! The largest number, and the largest difference of two lists. Both keep a NaN, so that no bound
//! holds for it.
//!
//! `f64::max` drops a NaN: with it a fold would accept broken results.

/// The largest of `numbers`; NaN where one of them is NaN, or where there is none.
pub fn largest(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let larger = |most: f64, x: f64| if x <= most || most.is_nan() { most } else { x };
    numbers.into_iter().reduce(larger).unwrap_or(f64::NAN)
}

/// The largest absolute difference; NaN where either list has one, 0 where both are empty. Equal
/// infinities have the difference 0.
///
/// # Panics
/// If the lengths differ.
pub fn largest_difference<A, B>(found: &[A], expected: &[B]) -> f64
where
    A: Copy + Into<f64>,
    B: Copy + Into<f64>,
{
    assert_eq!(found.len(), expected.len(), "lengths");
    let difference = |(&found, &expected): (&A, &B)| {
        let (found, expected): (f64, f64) = (found.into(), expected.into());
        if found == expected {
            0.0
        } else {
            (found - expected).abs()
        }
    };
    let differences = found.iter().zip(expected).map(difference);
    largest(differences.chain([0.0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_found_wherever_it_stands() {
        assert_eq!(largest([1.0, 3.0, 2.0]), 3.0);
        assert_eq!(largest([-1.0, -3.0]), -1.0);
        assert_eq!(largest([f64::INFINITY, 0.0]), f64::INFINITY);
        assert_eq!(largest_difference(&[1.0, 5.0], &[1.5, 2.0]), 3.0);
        assert_eq!(largest_difference::<f64, f64>(&[], &[]), 0.0);
        assert_eq!(largest_difference(&[f64::INFINITY], &[f64::INFINITY]), 0.0);
        assert_eq!(largest_difference(&[f64::INFINITY], &[1.0]), f64::INFINITY);
    }

    #[test]
    fn a_nan_is_never_lost() {
        for at in 0..3 {
            let mut numbers = [1.0, 2.0, 3.0];
            numbers[at] = f64::NAN;
            assert!(largest(numbers).is_nan(), "{at}");
            assert!(largest_difference(&numbers, &[1.0; 3]).is_nan(), "{at}");
            assert!(largest_difference(&[1.0; 3], &numbers).is_nan(), "{at}");
            let short = numbers.map(|x| x as f32);
            assert!(largest_difference(&short, &[1.0f32; 3]).is_nan(), "{at}");
        }
        assert!(largest([]).is_nan());
    }
}
