//! Two lists of numbers -> their differences.

/// `a - b`, element by element.
pub fn difference(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn each_element_is_taken_from_its_own() {
        assert_eq!(difference(&[3.0, 1.0], &[1.0, 2.5]), [2.0, -1.5]);
    }
}
