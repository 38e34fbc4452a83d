//! Numbers <-> E4M3, floats of 8 bits: a sign, four bits of exponent, three of mantissa, no
//! infinity. As a table of scales.

use espalier_interface::small_float::{f8_e4m3_bits, f8_e4m3_number};

/// The codes that stand for no number.
pub const NANS: [u8; 2] = [0x7f, 0xff];

/// The largest number.
pub const LARGEST: f32 = 448.0;

/// Values of the codes; those of [`NANS`] are 0.
pub fn values() -> Vec<f32> {
    (0..=u8::MAX).map(value).collect()
}

fn value(code: u8) -> f32 {
    if NANS.contains(&code) {
        return 0.0;
    }
    f8_e4m3_number(code)
}

/// The code of the nearest number to `x`, which is not negative; halfway between two, that of the
/// even mantissa. Larger numbers have the largest.
pub fn code(x: f32) -> u8 {
    f8_e4m3_bits(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_from_their_codes() {
        let values = values();
        for (code_of, &value) in (0..0x7fu8).zip(&values) {
            assert_eq!(code(value), code_of, "{value}");
            assert_eq!(values[usize::from(code_of) + 128], -value);
        }
        assert_eq!(
            (values[1], values[8], values[0x7e]),
            (2f32.powi(-9), 2f32.powi(-6), 448.0)
        );
        assert_eq!(code(1e9), 0x7e);
    }

    #[test]
    fn numbers_between_two_take_the_nearest_then_the_even_one() {
        let values = values();
        for low in 0..0x7eu8 {
            let (below, above) = (values[usize::from(low)], values[usize::from(low) + 1]);
            let middle = (below + above) / 2.0;
            assert_eq!(code(middle.next_down()), low);
            assert_eq!(code(middle), low + low % 2, "{middle}");
            assert_eq!(code(middle.next_up()), low + 1);
        }
    }
}
