//! A storage dtype -> the dtype of its arithmetic, so that one generic kernel serves all.

use espalier_interface::DType;
use half::{bf16, f16};

/// A number for arithmetic: f32, or f64 in the reference mode.
pub trait Real:
    Copy
    + Default
    + PartialEq
    + PartialOrd
    + Send
    + Sync
    + std::fmt::Debug
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + std::ops::AddAssign
    + std::ops::MulAssign
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Minus infinity, the start of a maximum.
    const NEG_INFINITY: Self;

    /// The nearest value to `x`.
    fn from_f64(x: f64) -> Self;
    /// `self`, exactly.
    fn to_f64(self) -> f64;
    /// The square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// `self a + b`, rounded once.
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// `e^self`: the library's in f64; a polynomial that vectorises, under 2 ulp, in f32.
    fn exp(self) -> Self;
    /// [`Real::exp`] of what is not over 0: the same bits by fewer operations. NaN stays NaN.
    fn exp_below_zero(self) -> Self;
    /// The natural logarithm, from the standard library.
    fn ln(self) -> Self;
    /// The sine, from the standard library.
    fn sin(self) -> Self;
    /// The cosine, from the standard library.
    fn cos(self) -> Self;
    /// The hyperbolic tangent, from the standard library.
    fn tanh(self) -> Self;
    /// The error function, from the crate `libm`.
    fn erf(self) -> Self;
    /// False for NaN and infinities.
    fn finite(self) -> bool;
    /// The larger; `self` where `other` is NaN.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

impl Real for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    const NEG_INFINITY: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn mul_add(self, a: f32, b: f32) -> f32 {
        f32::mul_add(self, a, b)
    }
    #[inline(always)]
    fn exp(self) -> f32 {
        exp_f32(self)
    }
    #[inline(always)]
    fn exp_below_zero(self) -> f32 {
        exp_f32_below_zero(self)
    }
    #[inline(always)]
    fn ln(self) -> f32 {
        f32::ln(self)
    }
    #[inline(always)]
    fn sin(self) -> f32 {
        f32::sin(self)
    }
    #[inline(always)]
    fn cos(self) -> f32 {
        f32::cos(self)
    }
    #[inline(always)]
    fn tanh(self) -> f32 {
        f32::tanh(self)
    }
    #[inline(always)]
    fn erf(self) -> f32 {
        libm::erff(self)
    }
    #[inline(always)]
    fn finite(self) -> bool {
        self.is_finite()
    }
}

impl Real for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    const NEG_INFINITY: f64 = f64::NEG_INFINITY;

    #[inline(always)]
    fn from_f64(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn sqrt(self) -> f64 {
        f64::sqrt(self)
    }
    #[inline(always)]
    fn mul_add(self, a: f64, b: f64) -> f64 {
        f64::mul_add(self, a, b)
    }
    #[inline(always)]
    fn exp(self) -> f64 {
        f64::exp(self)
    }
    #[inline(always)]
    fn exp_below_zero(self) -> f64 {
        f64::exp(self)
    }
    #[inline(always)]
    fn ln(self) -> f64 {
        f64::ln(self)
    }
    #[inline(always)]
    fn sin(self) -> f64 {
        f64::sin(self)
    }
    #[inline(always)]
    fn cos(self) -> f64 {
        f64::cos(self)
    }
    #[inline(always)]
    fn tanh(self) -> f64 {
        f64::tanh(self)
    }
    #[inline(always)]
    fn erf(self) -> f64 {
        libm::erf(self)
    }
    #[inline(always)]
    fn finite(self) -> bool {
        self.is_finite()
    }
}

/// A dtype that tensors are stored in.
pub trait Element: Copy + Default + PartialEq + Send + Sync + std::fmt::Debug + 'static {
    /// Its accumulation dtype: f32, or f64 for f64.
    type Acc: Real + Element<Acc = Self::Acc>;
    /// Its id.
    const DTYPE: DType;

    /// The stored value, exactly.
    fn load(self) -> Self::Acc;
    /// The nearest stored value, ties to even.
    fn store(value: Self::Acc) -> Self;
}

impl Element for f64 {
    type Acc = f64;
    const DTYPE: DType = DType::F64;

    #[inline(always)]
    fn load(self) -> f64 {
        self
    }
    #[inline(always)]
    fn store(value: f64) -> f64 {
        value
    }
}

impl Element for f32 {
    type Acc = f32;
    const DTYPE: DType = DType::F32;

    #[inline(always)]
    fn load(self) -> f32 {
        self
    }
    #[inline(always)]
    fn store(value: f32) -> f32 {
        value
    }
}

impl Element for bf16 {
    type Acc = f32;
    const DTYPE: DType = DType::BF16;

    #[inline(always)]
    fn load(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// Without a branch, so that loops over it vectorise.
    #[inline(always)]
    fn store(value: f32) -> bf16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
        let quiet = (bits >> 16) | 0x40;
        let nan = bits & 0x7FFF_FFFF > 0x7F80_0000;
        bf16::from_bits(if nan { quiet } else { rounded } as u16)
    }
}

impl Element for f16 {
    type Acc = f32;
    const DTYPE: DType = DType::F16;

    #[inline(always)]
    fn load(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn store(value: f32) -> f16 {
        f16::from_f32(value)
    }
}

/// `x` in another dtype: exact where that is wider, else rounded to nearest, ties to even.
#[inline(always)]
pub fn convert<A: Element, B: Element>(x: A) -> B {
    B::store(convert_real(x.load()))
}

/// `x` in another arithmetic; free where both are the same.
#[inline(always)]
pub fn convert_real<A: Real, B: Real>(x: A) -> B {
    B::from_f64(x.to_f64())
}

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

/// [`exp_f32`] of what is not over 0: the same bits. NaN stays NaN.
///
/// One factor is enough for `-126 <= n <= 0`, and any number under the least one ends as 0.
#[inline(always)]
pub fn exp_f32_below_zero(x: f32) -> f32 {
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    let p = exp_of_rest(x, shifted - SHIFT);
    // The low nine bits of `SHIFT` are 0: only n is left of the shifted number.
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    let y = p * scale;
    if x < LEAST { 0.0 } else { y }
}

/// `e^r` with `x = n ln 2 + r`.
#[inline(always)]
fn exp_of_rest(x: f32, n: f32) -> f32 {
    // ln 2 in two parts, the first exact under multiplication by n (cephes).
    let r = x - n * (355.0 / 512.0) - n * -2.121_944_4e-4;
    let p = 1.987_569_1e-4; // minimax on [-ln 2 / 2, ln 2 / 2] (cephes), to the last
    let p = p * r + 1.398_2e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
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
            (f64::from(exp_f32(x)) - exact).abs() / ulp
        });
        let worst = largest(errors);
        assert!(worst < 2.0, "{worst} ulp");
        assert_eq!(exp_f32(0.0), 1.0);
        assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_f32(f32::INFINITY), f32::INFINITY);
        assert!(exp_f32(f32::NAN).is_nan());
    }

    #[test]
    fn exp_below_zero_has_the_bits_of_exp() {
        let all = (0..=0x42D0_0000).step_by(97).map(f32::from_bits);
        let near_least = (0..200).map(|i| f32::from_bits(87.336_54f32.to_bits() - 100 + i));
        let ends = [f32::INFINITY, f32::MAX, f32::MIN_POSITIVE];
        for x in all.chain(near_least).chain(ends) {
            let (found, expected) = (exp_f32_below_zero(-x), exp_f32(-x));
            assert_eq!(found.to_bits(), expected.to_bits(), "{x}");
        }
        assert!(exp_f32_below_zero(f32::NAN).is_nan());
    }

    #[test]
    fn bf16_rounds_as_the_half_crate() {
        for i in 0..200_000u32 {
            let bits = i.wrapping_mul(2_654_435_761);
            let x = f32::from_bits(bits);
            let ours = <bf16 as Element>::store(x);
            let theirs = bf16::from_f32(x);
            assert!(ours == theirs || x.is_nan() && ours.is_nan(), "{bits:08x}");
        }
        assert!(<bf16 as Element>::store(f32::from_bits(0x7F80_0001)).is_nan());
        assert_eq!(<bf16 as Element>::store(f32::MAX), bf16::INFINITY);
    }
}
