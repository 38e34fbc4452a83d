//! `e^x` in f32, without branches, so that loops over it vectorise.

/// 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits.
const SHIFT: f32 = 12_582_912.0;
/// The result would be subnormal below.
const LEAST: f32 = -87.336_54;

/// `e^x`, under 2 ulp, without branches: `2^n * p(r)` with `x = n ln 2 + r`, `|r| <= ln 2 / 2`.
///
/// Values under -87.33 give 0 (where the result would be subnormal), over 88.72 infinity; NaN
/// stays.
///
/// # Source
/// The reduction and the polynomial are Cephes' `expf` (S. Moshier, netlib `cephes/single/expf.c`).
#[inline(always)]
pub fn exp_f32(x: f32) -> f32 {
    let clamped = x.clamp(-88.0, 89.0);
    let shifted = clamped * std::f32::consts::LOG2_E + SHIFT;
    let p = exp_of_rest(clamped, shifted - SHIFT);
    // 2^n in two factors, so that n = 128 does not overflow before the product does. The integer is
    // read from the shifted number's bits: a saturating cast does not vectorise well.
    let n = shifted.to_bits().wrapping_sub(SHIFT.to_bits()) as i32;
    let half = n >> 1;
    let scale = f32::from_bits((half.wrapping_add(127) as u32) << 23);
    let rest = f32::from_bits((n.wrapping_sub(half).wrapping_add(127) as u32) << 23);
    let y = p * scale * rest;
    let y = if x < LEAST { 0.0 } else { y };
    let y = if x > 88.722_84 { f32::INFINITY } else { y };
    if x.is_nan() { x } else { y }
}

/// [`exp_f32`] of what is under 88: the same bits. NaN stays NaN.
///
/// One factor is enough for `-126 <= n <= 127`, and any number under the least one ends as 0.
#[inline(always)]
pub fn exp_f32_under_88(x: f32) -> f32 {
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    times_power(exp_of_rest(x, shifted - SHIFT), shifted, x)
}

/// `1 / (1 + e^-x)` with the bits that [`exp_f32`] gives it, by fewer operations.
///
/// `2^n` of `e^-x` is halved, so that one factor is enough. Less than `e^-80` does not change 1.
#[inline(always)]
pub fn sigmoid_f32(x: f32) -> f32 {
    let x = (-x).clamp(-80.0, 89.0);
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    let p = exp_of_rest(x, shifted - SHIFT);
    // The power of 2 of one exponent less: that of 128 is none.
    let half = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0.5f32.to_bits()));
    1.0 / (1.0 + (p + p) * half)
}

/// [`exp_f32_under_88`] with each product and sum rounded once.
#[inline(always)]
pub fn exp_f32_fused(x: f32) -> f32 {
    let shifted = x.mul_add(std::f32::consts::LOG2_E, SHIFT);
    let n = shifted - SHIFT;
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-355.0 / 512.0, x));
    let p = POLYNOMIAL[1..]
        .iter()
        .fold(POLYNOMIAL[0], |p, &next| p.mul_add(r, next));
    times_power(p.mul_add(r * r, r) + 1.0, shifted, x)
}

/// `2^n p`, of the shifted `n`; 0 where `x` is under the least one.
#[inline(always)]
fn times_power(p: f32, shifted: f32, x: f32) -> f32 {
    // The low nine bits of `SHIFT` are 0: only n is left of the shifted number.
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    let y = p * scale;
    if x < LEAST { 0.0 } else { y }
}

/// The coefficients of a minimax polynomial on `[-ln 2 / 2, ln 2 / 2]` (cephes), from the highest
/// power of `r` on: it is `(e^r - 1 - r) / r^2`.
const POLYNOMIAL: [f32; 6] = [
    1.987_569_1e-4,
    1.398_2e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    0.5,
];

/// `e^r` with `x = n ln 2 + r`.
#[inline(always)]
fn exp_of_rest(x: f32, n: f32) -> f32 {
    // ln 2 in two parts, the first exact under multiplication by n (cephes).
    let r = x - n * (355.0 / 512.0) - n * -2.121_944_4e-4;
    let p = POLYNOMIAL[1..]
        .iter()
        .fold(POLYNOMIAL[0], |p, next| p * r + next);
    p * (r * r) + r + 1.0
}

#[cfg(test)]
mod tests {
    use espalier_conformance::largest;

    use super::*;

    #[test]
    fn exp_is_within_two_ulp() {
        let errors = (-87_000..88_700).map(|i| {
            let x = i as f32 * 1e-3;
            let exact = f64::from(x).exp();
            let ulp = f64::from(f32::from_bits((exact as f32).to_bits() + 1) - exact as f32);
            let found = [
                exp_f32(x),
                if x < 88.0 {
                    exp_f32_fused(x)
                } else {
                    exp_f32(x)
                },
            ];
            largest(found.map(|found| (f64::from(found) - exact).abs() / ulp))
        });
        let worst = largest(errors);
        assert!(worst < 2.0, "{worst} ulp");
        assert_eq!(exp_f32_fused(0.0), 1.0);
        assert_eq!(exp_f32_fused(f32::NEG_INFINITY), 0.0);
        assert!(exp_f32_fused(f32::NAN).is_nan());
        assert_eq!(exp_f32(0.0), 1.0);
        assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_f32(f32::INFINITY), f32::INFINITY);
        assert!(exp_f32(f32::NAN).is_nan());
    }

    #[test]
    fn sigmoid_has_the_bits_of_its_formula() {
        let all = (0..=0x42D0_0000).step_by(97).map(f32::from_bits);
        let near = |x: f32| (0..200).map(move |i| f32::from_bits(x.to_bits() - 100 + i));
        let near = [80.0, 87.336_54, 88.0, 88.376, 88.722_84, 89.0]
            .into_iter()
            .flat_map(near);
        for x in all
            .chain(near)
            .chain([f32::INFINITY, f32::MAX, f32::MIN_POSITIVE])
        {
            for x in [x, -x] {
                let (found, expected) = (sigmoid_f32(x), 1.0 / (1.0 + exp_f32(-x)));
                assert_eq!(found.to_bits(), expected.to_bits(), "{x}");
            }
        }
        assert!(sigmoid_f32(f32::NAN).is_nan());
    }

    #[test]
    fn exp_under_88_has_the_bits_of_exp() {
        let all = (0..=0x42D0_0000).step_by(97).map(f32::from_bits);
        let near_least = (0..200).map(|i| f32::from_bits(87.336_54f32.to_bits() - 100 + i));
        let ends = [f32::INFINITY, f32::MAX, f32::MIN_POSITIVE];
        for x in all.chain(near_least).chain(ends) {
            let (found, expected) = (exp_f32_under_88(-x), exp_f32(-x));
            assert_eq!(found.to_bits(), expected.to_bits(), "{x}");
            if x < 88.0 {
                let (found, expected) = (exp_f32_under_88(x), exp_f32(x));
                assert_eq!(found.to_bits(), expected.to_bits(), "{x}");
            }
        }
        assert!(exp_f32_under_88(f32::NAN).is_nan());
    }
}
