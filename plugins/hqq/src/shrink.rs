//! An error -> the same after shrinking its p-norm: hqq's generalised soft threshold.

/// `p - 1` of the norm.
const EXPONENT: f64 = (0.7f64 - 1.0) as f32 as f64; // hqq/core/optimize.py, opt_params["lp_norm"]

/// Numbers below it shrink to zero for every beta.
const SMALLEST: f32 = 0.1;

/// The shrinking of an iteration.
///
/// # Source
/// hqq 0.2.8 `core/optimize.py`, `shrink_lp_op`.
#[derive(Clone, Copy)]
pub struct Shrinking {
    inverse_beta: f32,
    /// Errors below it shrink to zero.
    threshold: f32,
}

impl Shrinking {
    /// Shrinking by `1 / beta`, at least 1/20.
    pub fn by(inverse_beta: f32) -> Self {
        // |d| = |d|^(p-1) / beta, minus the rounding error.
        let threshold = f64::from(inverse_beta).powf(1.0 / (1.0 - EXPONENT)) * 0.999;
        Shrinking {
            inverse_beta,
            threshold: threshold as f32,
        }
    }

    /// Whether errors up to `size` shrink to zero; false for NaN.
    #[inline(always)]
    pub fn leaves_nothing_of(self, size: f32) -> bool {
        size < self.threshold
    }

    /// `sign(d) max(|d| - |d|^(p-1) / beta, 0)`.
    #[inline(always)]
    pub fn of(self, d: f32) -> f32 {
        let size = d.abs();
        let rest = size - self.inverse_beta * power(size);
        let rest = if rest > 0.0 && size > SMALLEST {
            rest
        } else {
            0.0
        };
        rest.copysign(d)
    }
}

/// `x^(p-1)` of a number above `SMALLEST`, exact to the last bit except ties; undefined for others.
#[inline(always)]
fn power(x: f32) -> f32 {
    exp2(EXPONENT * log2(x)) as f32
}

/// The binary logarithm of a positive normal number, to 1e-11.
#[inline(always)]
fn log2(x: f32) -> f64 {
    // x = 2^exponent m with m in sqrt(1/2) .. sqrt(2).
    let bits = x.to_bits().wrapping_sub(0x3f35_04f3);
    let exponent = (bits as i32) >> 23;
    let m = f64::from(f32::from_bits((bits & 0x007f_ffff) + 0x3f35_04f3));
    // ln m = 2 artanh((m - 1) / (m + 1)), whose series ends below 0.0295^7 / 15.
    let t = (m - 1.0) / (m + 1.0);
    let t2 = t * t;
    let series = [13.0, 11.0, 9.0, 7.0, 5.0, 3.0];
    let sum = series.iter().fold(1.0 / 15.0, |sum, n| sum * t2 + 1.0 / n);
    let ln = 2.0 * (t * t2 * sum + t);
    ln * std::f64::consts::LOG2_E + f64::from(exponent)
}

/// `2^x` for `x` within +-1000, to 1e-11.
#[inline(always)]
fn exp2(x: f64) -> f64 {
    const ROUNDING: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    let shifted = x + ROUNDING;
    let whole = shifted - ROUNDING;
    let y = (x - whole) * std::f64::consts::LN_2;
    let terms = [10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0];
    let sum = terms.iter().fold(1.0, |sum, n| sum * y * (1.0 / n) + 1.0);
    let power = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52));
    sum * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_those_of_the_library() {
        let mut x = SMALLEST;
        while x < 3e38 {
            let expected = f64::from(x).powf(EXPONENT);
            let error = (exp2(EXPONENT * log2(x)) / expected - 1.0).abs();
            assert!(error < 1e-10, "{x}: off by {error}");
            x *= 1.037;
        }
    }

    #[test]
    fn small_errors_vanish_and_large_ones_stay() {
        for inverse_beta in [0.1, 0.0828] {
            let shrinking = Shrinking::by(inverse_beta);
            let edge = shrinking.threshold;
            assert!(edge > SMALLEST);
            for d in [0.0, 1e-40, 1e-3, SMALLEST, edge] {
                assert_eq!(shrinking.of(d), 0.0);
                assert_eq!(shrinking.of(-d), 0.0);
            }
            assert!(shrinking.leaves_nothing_of(0.99 * edge));
            assert!(shrinking.of(1.01 * edge) > 0.0);
        }
        let shrinking = Shrinking::by(0.1);
        assert!(!shrinking.leaves_nothing_of(f32::NAN));
        assert!((shrinking.of(-1.0) + 0.9).abs() < 1e-7);
        assert!((shrinking.of(2.0) - (2.0 - 0.1 * 2f32.powf(-0.3))).abs() < 1e-6);
    }
}
