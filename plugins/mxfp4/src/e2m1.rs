//! Numbers <-> E2M1, floats of 4 bits: a sign, two bits of exponent, one of mantissa.

/// Values of the codes, the sign in bit 3.
///
/// # Source
/// OCP Microscaling Formats (MX) 1.0, section 5.3.3.
pub const VALUES: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// The largest of them.
pub const LARGEST: f32 = 6.0;

/// The code of the nearest value; halfway between two, that of the even mantissa. Larger numbers
/// have the largest value. A negative number that is rounded to 0 keeps its sign; -0 loses it.
///
/// # Source
/// compressed-tensors 0.20.0 `quantization/utils/fp4_utils.py`, `cast_to_fp4`.
#[inline(always)]
pub fn code(x: f32) -> u8 {
    let size = x.abs();
    let above = [
        size > 0.25,
        size >= 0.75,
        size > 1.25,
        size >= 1.75,
        size > 2.5,
        size >= 3.5,
        size > 5.0,
    ];
    let steps: u8 = above.into_iter().map(u8::from).sum();
    steps | u8::from(x < 0.0) << 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_own_codes() {
        for (value, expected) in VALUES.into_iter().zip(0u8..) {
            // -0 has the code of 0.
            let expected = if expected == 8 { 0 } else { expected };
            assert_eq!(code(value), expected, "{value}");
        }
    }

    #[test]
    fn numbers_between_two_values_take_the_nearest_then_the_even_one() {
        for low in 0..7u8 {
            let (below, above) = (VALUES[usize::from(low)], VALUES[usize::from(low) + 1]);
            let middle = (below + above) / 2.0;
            assert_eq!(code(middle.next_down()), low);
            assert_eq!(code(middle), low + low % 2, "{middle}");
            assert_eq!(code(-middle.next_up()), low + 1 + 8);
        }
        assert_eq!((code(1e30), code(f32::NEG_INFINITY)), (7, 15));
        assert_eq!(code(-1e-40), 8);
    }
}
