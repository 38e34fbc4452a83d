//! Logits -> the likeliest token.

/// The index of the largest number, the first among equals; `None` without any.
pub fn likeliest(logits: &[f64]) -> Option<usize> {
    let larger = |best: usize, at: usize| if logits[at] > logits[best] { at } else { best };
    (!logits.is_empty()).then(|| (0..logits.len()).fold(0, larger))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_largest_wins() {
        assert_eq!(likeliest(&[]), None);
        assert_eq!(likeliest(&[-1.0]), Some(0));
        assert_eq!(likeliest(&[0.0, 2.0, 1.0, 2.0]), Some(1));
    }
}
