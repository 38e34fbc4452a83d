//! Numbers as floats of 16 and 8 bits, and back: what quantizers store as scales and values.
//!
//! All conversions round to nearest, ties to even.

use crate::DType;

/// An 8-bit float: its bits of mantissa, the bias of its exponent, its largest number.
struct Layout {
    mantissa_bits: u32,
    bias: i32,
    largest: f32,
    largest_code: u8,
}

/// OCP's E4M3, `float8_e4m3fn` of torch: no infinities, one NaN of each sign.
const E4M3: Layout = Layout {
    mantissa_bits: 3,
    bias: 7,
    largest: 448.0,
    largest_code: 0x7e,
};

/// OCP's E5M2, `float8_e5m2` of torch, as IEEE's floats: infinities and NaNs.
const E5M2: Layout = Layout {
    mantissa_bits: 2,
    bias: 15,
    largest: 57344.0,
    largest_code: 0x7b,
};

/// The bits of `x` as f16; beyond 65504, an infinity.
pub fn f16_bits(x: f32) -> u16 {
    half::f16::from_f32(x).to_bits()
}

/// The number of the f16 `bits`.
pub fn f16_number(bits: u16) -> f32 {
    half::f16::from_bits(bits).to_f32()
}

/// The bits of `x` as bf16.
pub fn bf16_bits(x: f32) -> u16 {
    half::bf16::from_f32(x).to_bits()
}

/// The number of the bf16 `bits`.
pub fn bf16_number(bits: u16) -> f32 {
    half::bf16::from_bits(bits).to_f32()
}

/// The bits of `x` as E4M3. A number beyond 448, or an infinity, becomes 448 of its sign; torch
/// makes it NaN, and packages clamp before.
pub fn f8_e4m3_bits(x: f32) -> u8 {
    E4M3.bits(x, 0x7f)
}

/// The number of the E4M3 `bits`.
pub fn f8_e4m3_number(bits: u8) -> f32 {
    match bits & 0x7f {
        0x7f => f32::NAN,
        _ => E4M3.number(bits),
    }
}

/// The bits of `x` as E5M2. A number beyond 57344 becomes 57344 of its sign; an infinity stays one.
pub fn f8_e5m2_bits(x: f32) -> u8 {
    if x.is_infinite() {
        0x7c | sign(x)
    } else {
        E5M2.bits(x, 0x7e)
    }
}

/// The number of the E5M2 `bits`.
pub fn f8_e5m2_number(bits: u8) -> f32 {
    match bits & 0x7f {
        0x7c => f32::INFINITY.copysign(if bits > 0x7f { -1.0 } else { 1.0 }),
        0x7d..=0x7f => f32::NAN,
        _ => E5M2.number(bits),
    }
}

/// The number that a float `dtype` of at most 32 bits stores in place of `x`; none for another
/// dtype.
pub fn rounded(x: f32, dtype: DType) -> Option<f32> {
    match dtype {
        DType::F32 => Some(x),
        DType::BF16 => Some(bf16_number(bf16_bits(x))),
        DType::F16 => Some(f16_number(f16_bits(x))),
        DType::F8_E4M3 => Some(f8_e4m3_number(f8_e4m3_bits(x))),
        DType::F8_E5M2 => Some(f8_e5m2_number(f8_e5m2_bits(x))),
        _ => None,
    }
}

impl Layout {
    fn bits(&self, x: f32, nan: u8) -> u8 {
        let size = x.abs();
        if x.is_nan() {
            return nan | sign(x);
        }
        if size >= self.largest {
            return self.largest_code | sign(x);
        }
        // The exponent of f32; below the smallest normal number steps stay as they are there.
        let exponent = ((size.to_bits() >> 23) as i32 - 127).max(1 - self.bias);
        // A power of two: the division is exact.
        let steps = size / power_of_two(exponent - self.mantissa_bits as i32);
        let steps = steps.round_ties_even() as u32;
        // Codes are in the order of their numbers, so that a carry gives the next exponent.
        let code = (((exponent + self.bias - 1) as u32) << self.mantissa_bits) + steps;
        (code as u8).min(self.largest_code) | sign(x)
    }

    fn number(&self, bits: u8) -> f32 {
        let exponent = i32::from((bits & 0x7f) >> self.mantissa_bits);
        let fraction = bits & ((1 << self.mantissa_bits) - 1);
        let leading = if exponent == 0 {
            0
        } else {
            1 << self.mantissa_bits
        };
        let step = exponent.max(1) - self.bias - self.mantissa_bits as i32;
        let size = f32::from(fraction + leading) * power_of_two(step);
        if bits > 0x7f { -size } else { size }
    }
}

/// `2^exponent`, a normal number.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

fn sign(x: f32) -> u8 {
    if x.is_sign_negative() { 0x80 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Float = (fn(f32) -> u8, fn(u8) -> f32);
    const FLOATS: [Float; 2] = [
        (f8_e4m3_bits, f8_e4m3_number),
        (f8_e5m2_bits, f8_e5m2_number),
    ];

    #[test]
    fn known_numbers_of_the_formats() {
        // OCP 8-bit floating point specification, table 2.
        for (bits, number) in [
            (0x7e, 448.0),
            (0x38, 1.0),
            (0x08, 0.015_625),
            (0x01, 0.001_953_125),
        ] {
            assert_eq!((f8_e4m3_number(bits), f8_e4m3_bits(number)), (number, bits));
        }
        for (bits, number) in [
            (0x7b, 57344.0),
            (0x3c, 1.0),
            (0x04, 6.103_515_6e-5),
            (0x01, 1.525_878_9e-5),
        ] {
            assert_eq!((f8_e5m2_number(bits), f8_e5m2_bits(number)), (number, bits));
        }
        assert!(f8_e4m3_number(0x7f).is_nan() && f8_e4m3_number(0xff).is_nan());
        assert_eq!(f8_e5m2_number(0xfc), f32::NEG_INFINITY);
        assert_eq!(f8_e5m2_bits(f32::INFINITY), 0x7c);
        assert_eq!(f8_e4m3_bits(f32::NEG_INFINITY), 0xfe);
        assert_eq!([f8_e4m3_bits(1e9), f8_e5m2_bits(-1e9)], [0x7e, 0xfb]);
    }

    #[test]
    fn every_code_is_its_own_and_halves_go_to_even_codes() {
        for (bits, number) in FLOATS {
            for code in 0..=255u8 {
                let here = number(code);
                if here.is_nan() {
                    assert!(number(bits(here)).is_nan());
                    continue;
                }
                assert_eq!(bits(here), code);
                let next = number(code.wrapping_add(1));
                if !here.is_finite() || !next.is_finite() || code & 0x7f == 0x7f {
                    continue;
                }
                let middle = (here + next) / 2.0;
                let even = if code % 2 == 0 { code } else { code + 1 };
                assert_eq!(bits(middle), even, "between {here} and {next}");
                let (before, after) = (middle.abs().next_down(), middle.abs().next_up());
                let signed = |x: f32| x.copysign(middle);
                assert_eq!(
                    (bits(signed(before)), bits(signed(after))),
                    (code, code + 1)
                );
            }
        }
    }

    #[test]
    fn rounding_is_that_of_the_stored_number() {
        assert_eq!(rounded(1.0 + 2f32.powi(-9), DType::BF16), Some(1.0));
        assert_eq!(
            rounded(1.0 + 2f32.powi(-9), DType::F16),
            Some(1.0 + 2f32.powi(-9))
        );
        assert_eq!(rounded(300.0, DType::F8_E4M3), Some(288.0));
        assert_eq!(rounded(0.1, DType::F32), Some(0.1));
        assert_eq!(rounded(1.0, DType::U8), None);
    }
}
