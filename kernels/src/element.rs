//! A storage dtype -> the dtype of its arithmetic, so that one generic kernel serves all.

mod exp;

use espalier_interface::DType;
use half::{bf16, f16};

pub use exp::exp_f32;
use exp::{exp_f32_fused, exp_f32_under_88, sigmoid_f32};

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
    /// `1 / (1 + e^-x)`.
    fn sigmoid(self) -> Self;
    /// [`Real::exp`] of what is under 88: the same bits by fewer operations. NaN stays NaN.
    fn exp_under_88(self) -> Self;
    /// `e^self` of what is under 88 by fused multiply-adds, under 2 ulp in f32. NaN stays NaN.
    fn exp_fused(self) -> Self;
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
    fn sigmoid(self) -> f32 {
        sigmoid_f32(self)
    }
    #[inline(always)]
    fn exp_under_88(self) -> f32 {
        exp_f32_under_88(self)
    }
    #[inline(always)]
    fn exp_fused(self) -> f32 {
        exp_f32_fused(self)
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
    fn sigmoid(self) -> f64 {
        1.0 / (1.0 + f64::exp(-self))
    }
    #[inline(always)]
    fn exp_under_88(self) -> f64 {
        f64::exp(self)
    }
    #[inline(always)]
    fn exp_fused(self) -> f64 {
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

    /// In whole numbers, which are vectors of any instruction set.
    #[inline(always)]
    fn load(self) -> f32 {
        /// What an exponent of f32 has more than the same one of f16.
        const EXPONENT: u32 = (127 - 15) << 23;
        let bits = u32::from(self.to_bits());
        let magnitude = bits & 0x7fff;
        // The exponent of infinities and NaN has all bits set in both.
        let last = if magnitude >= 0x7c00 { EXPONENT } else { 0 };
        let normal = f32::from_bits((magnitude << 13) + EXPONENT + last);
        let subnormal = magnitude as i32 as f32 * f32::from_bits((127 - 24) << 23);
        let number = if magnitude < 0x400 { subnormal } else { normal };
        f32::from_bits(number.to_bits() | (bits & 0x8000) << 16)
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn f16_has_the_numbers_of_the_half_crate() {
        for x in (0..=u16::MAX).map(f16::from_bits) {
            let (ours, theirs) = (x.load(), x.to_f32());
            let same = ours.to_bits() == theirs.to_bits();
            assert!(
                same || ours.is_nan() && theirs.is_nan(),
                "{:04x}",
                x.to_bits()
            );
        }
    }
}
