//! Numbers -> the first that is not finite.

use espalier_interface::DType;
use half::{bf16, f16};

/// Numbers that are looked at before the search may end.
const BLOCK: usize = 1024;

/// The index of the first number that is NaN or infinite.
pub fn first_not_finite(numbers: &[f32]) -> Option<usize> {
    first(numbers, |x| !x.is_finite())
}

/// The index of the first number that is NaN or whose magnitude is above `largest`.
pub fn first_beyond(numbers: &[f32], largest: f32) -> Option<usize> {
    let within = |x: &f32| x.abs() <= largest;
    first(numbers, |x| !within(x))
}

/// The index of the first of little-endian elements of `dtype` that is NaN or infinite. Only floats
/// of 16 bits or more are looked at.
pub fn first_not_finite_element(bytes: &[u8], dtype: DType) -> Option<usize> {
    match dtype {
        DType::F64 => element(bytes, |x| !f64::from_le_bytes(x).is_finite()),
        DType::F32 => element(bytes, |x| !f32::from_le_bytes(x).is_finite()),
        DType::BF16 => element(bytes, |x| !bf16::from_le_bytes(x).is_finite()),
        DType::F16 => element(bytes, |x| !f16::from_le_bytes(x).is_finite()),
        _ => None,
    }
}

fn element<const WIDTH: usize>(
    bytes: &[u8],
    is_bad: impl Fn([u8; WIDTH]) -> bool,
) -> Option<usize> {
    first(bytes.as_chunks::<WIDTH>().0, |&bytes| is_bad(bytes))
}

fn first<T>(items: &[T], is_bad: impl Fn(&T) -> bool) -> Option<usize> {
    // Counting has no early exit, so it vectorises. The search runs only where there is something
    // to find.
    let blocks = (0..).step_by(BLOCK).zip(items.chunks(BLOCK));
    let mut bad = blocks.filter(|(_, block)| block.iter().filter(|x| is_bad(x)).count() > 0);
    let (start, block) = bad.next()?;
    Some(start + block.iter().position(is_bad)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_numbers;

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
            let mut bytes = Vec::new();
            for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
                write_numbers(&numbers, dtype, &mut bytes);
                assert_eq!(first_not_finite_element(&bytes, dtype), Some(at), "{dtype}");
            }
        }
        assert_eq!(first_not_finite_element(&[0xff; 8], DType::I32), None);
        let largest = f64::MAX.to_le_bytes();
        assert_eq!(first_not_finite_element(&largest, DType::F64), None);
    }

    #[test]
    fn a_bound_is_allowed_and_what_is_beyond_it_is_found() {
        let mut numbers = vec![-2.0f32; BLOCK + 3];
        assert_eq!(first_beyond(&numbers, 2.0), None);
        numbers[BLOCK + 1] = -2.5;
        assert_eq!(first_beyond(&numbers, 2.0), Some(BLOCK + 1));
        numbers[3] = f32::NAN;
        assert_eq!(first_beyond(&numbers, f32::INFINITY), Some(3));
    }
}
