//! A number -> the nearest number of a dtype, and how far apart the dtype's numbers are there.

use espalier_interface::DType;

/// Unit roundoff of f32, the reduce dtype: half of the distance from 1 to the next number.
pub const U: f64 = 1.0 / 16_777_216.0;

/// The least normal f32. A device may take smaller numbers as zero.
pub const LEAST: f64 = f32::MIN_POSITIVE as f64;

/// The error of the error function, of 1. Fast libraries compute it by Abramowitz and Stegun's
/// 7.1.26, which is good to 1.5e-7, with roundings of a polynomial and an `e^x`.
pub const ERROR_OF_ERF: f64 = 8.0 * U;

/// How far a sum moves where one factor of each term is rounded to bf16 first, as matrix units need
/// it. `sum` and `squares` are the sums of the terms' magnitudes and of their squares.
///
/// Roundings of random numbers add up as their squares do; four deviations are allowed, at most the
/// sum.
pub fn moved_by_bf16(sum: f64, squares: f64) -> f64 {
    2f64.powi(-8) * sum.min(4.0 * squares.sqrt())
}

/// Bits of a float's significand with the leading one, and the exponents of its least and greatest
/// normal numbers (IEEE 754; bfloat16 is the upper half of an f32).
fn layout(dtype: DType) -> Option<(i32, i32, i32)> {
    match dtype {
        DType::F32 => Some((24, -126, 127)),
        DType::BF16 => Some((8, -126, 127)),
        DType::F16 => Some((11, -14, 15)),
        _ => None,
    }
}

fn power(exponent: i32) -> f64 {
    2f64.powi(exponent)
}

/// The distance between the numbers of a float `dtype` around `x`; 0 for integers and f64, which
/// the kit computes in.
pub fn ulp(dtype: DType, x: f64) -> f64 {
    let Some((digits, least, greatest)) = layout(dtype) else {
        return 0.0;
    };
    let exponent = ((x.to_bits() >> 52) & 0x7FF) as i32 - 1023;
    power(exponent.clamp(least, greatest) - digits + 1)
}

/// The number of `dtype` nearest to `x`, ties to even; infinite where `x` is too large for it.
/// Integers and f64 stay as they are.
pub fn nearest(dtype: DType, x: f64) -> f64 {
    let Some((digits, _, greatest)) = layout(dtype) else {
        return x;
    };
    if !x.is_finite() {
        return x;
    }
    let step = ulp(dtype, x);
    let rounded = (x / step).round_ties_even() * step;
    let most = power(greatest) * (2.0 - power(1 - digits));
    if rounded.abs() > most {
        f64::INFINITY.copysign(x)
    } else {
        rounded
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn f32_rounds_as_the_processor_does() {
        for i in 0..100_000u64 {
            let bits = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let x = f64::from_bits(bits);
            let exponent = (bits >> 52 & 0x7FF) as i32 - 1023;
            if !x.is_finite() || exponent.abs() > 160 {
                // Most of these are far outside of f32.
                continue;
            }
            assert_eq!(nearest(DType::F32, x), f64::from(x as f32), "{x:e}");
        }
        for x in [1e-40, 3.4e38, 3.5e38, -1e-46, 0.0, 16_777_217.0] {
            assert_eq!(nearest(DType::F32, x), f64::from(x as f32), "{x:e}");
        }
    }

    #[test]
    fn half_widths_round_as_the_half_crate_does_from_f32() {
        for i in 0..100_000u32 {
            let x = f32::from_bits(i.wrapping_mul(2_654_435_761));
            if x.is_nan() {
                continue;
            }
            let wide = f64::from(x);
            let expected = f64::from(bf16::from_f32(x));
            assert_eq!(nearest(DType::BF16, wide), expected, "{x:e}");
            assert_eq!(
                nearest(DType::F16, wide),
                f64::from(f16::from_f32(x)),
                "{x:e}"
            );
        }
    }

    #[test]
    fn steps_are_those_of_the_formats() {
        assert_eq!(ulp(DType::F32, 1.0), f64::from(f32::EPSILON));
        assert_eq!(ulp(DType::BF16, -1.5), 1.0 / 128.0);
        assert_eq!(ulp(DType::F16, 2.0), 2.0 / 1024.0);
        assert_eq!(ulp(DType::I32, 3.0), 0.0);
        assert_eq!(ulp(DType::F32, 0.0), 2f64.powi(-149));
    }
}
