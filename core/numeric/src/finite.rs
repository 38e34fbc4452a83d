//! Numbers -> the first that is not finite.

/// Numbers that are looked at before the search may end.
const BLOCK: usize = 1024;

/// The index of the first number that is NaN or infinite.
pub fn first_not_finite(numbers: &[f32]) -> Option<usize> {
    let is_bad = |x: &&f32| !x.is_finite();
    // Counting has no early exit, so it vectorises. The search runs only where there is something
    // to find.
    let blocks = (0..).step_by(BLOCK).zip(numbers.chunks(BLOCK));
    let mut bad = blocks.filter(|(_, block)| block.iter().filter(is_bad).count() > 0);
    let (first, block) = bad.next()?;
    Some(first + block.iter().position(|x| !x.is_finite())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_found_in_any_block() {
        let mut numbers = vec![1.0f32; 3 * BLOCK + 5];
        assert_eq!(first_not_finite(&numbers), None);
        for (at, bad) in [
            (3 * BLOCK + 4, f32::NAN),
            (BLOCK, f32::INFINITY),
            (7, f32::NAN),
        ] {
            numbers[at] = bad;
            assert_eq!(first_not_finite(&numbers), Some(at));
        }
    }
}
