//! The largest magnitude of a block <-> its scale in E8M0, a power of two.

/// The code that stands for no number.
pub const NAN: u8 = 255;

/// Exponent of the code 0.
const LEAST: i32 = -127;

/// The largest code of a block, with which 6, the largest value of E2M1, is still finite.
const LARGEST: u32 = 252;

/// Values of the codes: `2^(code - 127)`. That of [`NAN`] is 0.
///
/// # Source
/// OCP Microscaling Formats (MX) 1.0, section 5.4.1.
pub fn values() -> Vec<f32> {
    let mut values: Vec<f32> = (0..256).map(value).collect();
    values[usize::from(NAN)] = 0.0;
    values
}

/// `2^(code - 127)`, exactly.
fn value(code: i32) -> f32 {
    2f64.powi(code + LEAST) as f32
}

/// The code of a block's scale: that of the power of two by which the largest values of E2M1 are at
/// the block's largest magnitude, which is rounded to one bit of mantissa first.
///
/// # Source
/// compressed-tensors 0.20.0 `quantization/utils/mxfp_utils.py`, `generate_mx_scales`. Its largest
/// codes, of magnitudes from 1.75 * 2^127 on, give infinite values and are not followed.
pub fn code(largest: f32) -> u8 {
    const HALF_OF_LAST_BIT: u32 = 1 << 21;
    const E2M1_EXPONENT: u32 = 2;
    let exponent = (largest.to_bits() + HALF_OF_LAST_BIT) >> 23;
    exponent.saturating_sub(E2M1_EXPONENT).min(LARGEST) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_brings_the_largest_magnitude_to_the_largest_values() {
        let values = values();
        for largest in [1.0f32, 1.5, 1.7, 1.75, 6.0, 3e-3, 1e30, 2e38, 1e-37] {
            let scaled = largest / values[usize::from(code(largest))];
            assert!((3.5..7.0).contains(&scaled), "{largest}: {scaled}");
        }
        assert_eq!((code(0.0), code(1e-40), code(f32::MIN_POSITIVE)), (0, 0, 0));
        assert_eq!((code(4.0), code(f32::MAX)), (127, 252));
        assert!((6.0 * values[252]).is_finite());
        assert_eq!(
            (values[127], values[0], values[255]),
            (1.0, 5.877_472e-39, 0.0)
        );
        assert!(values.iter().all(|value| value.is_finite()));
    }
}
