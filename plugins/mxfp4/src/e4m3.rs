//! Numbers <-> E4M3, floats of 8 bits: a sign, four bits of exponent, three of mantissa, no
//! infinity.

/// The codes that stand for no number.
pub const NANS: [u8; 2] = [0x7f, 0xff];

/// The largest number.
pub const LARGEST: f32 = 448.0;

/// Exponent of the numbers whose codes have the exponent 0 or 1.
const LEAST_EXPONENT: i32 = -6;

/// Values of the codes; those of [`NANS`] are 0.
///
/// # Source
/// Micikevicius et al. 2022 (FP8 Formats for Deep Learning), table 1.
pub fn values() -> Vec<f32> {
    (0..=u8::MAX).map(value).collect()
}

fn value(code: u8) -> f32 {
    if NANS.contains(&code) {
        return 0.0;
    }
    let (exponent, eighths) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let size = match exponent {
        0 => eighths / 8.0 * 2f32.powi(LEAST_EXPONENT),
        _ => (1.0 + eighths / 8.0) * 2f32.powi(exponent - 7),
    };
    if code >> 7 == 1 { -size } else { size }
}

/// The code of the nearest number to `x`, which is not negative; halfway between two, that of the
/// even mantissa. Larger numbers have the largest.
#[inline(always)]
pub fn code(x: f32) -> u8 {
    const DROPPED: u32 = 20;
    const BIAS: u32 = (127 - 7) << 3;
    let x = x.min(LARGEST);
    if x < 2f32.powi(LEAST_EXPONENT) {
        return (x * 512.0).round_ties_even() as u8;
    }
    let bits = x.to_bits();
    let rounded = (bits + (1 << (DROPPED - 1)) - 1 + (bits >> DROPPED & 1)) >> DROPPED;
    (rounded - BIAS) as u8
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
