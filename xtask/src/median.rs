//! Numbers -> the middle one.

/// The middle value, of an even number the mean of the two.
///
/// # Panics
/// Without values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (half, count) = (values.len() / 2, values.len());
    match count % 2 {
        0 => f64::midpoint(values[half - 1], values[half]),
        _ => values[half],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
    }
}
