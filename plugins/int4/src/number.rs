//! The dtype in which scales and zeros are stored: its rounding and its bytes.

use espalier_interface::DType;
use espalier_interface::small_float::{self, bf16_bits, f16_bits, f16_number};

/// A dtype of stored numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    F16,
    BF16,
    F32,
}

impl Number {
    /// The dtype of that name; none where there is no such dtype.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "f16" => Number::F16,
            "bf16" => Number::BF16,
            "f32" => Number::F32,
            _ => return None,
        })
    }

    /// The same for the format.
    pub fn dtype(self) -> DType {
        match self {
            Number::F16 => DType::F16,
            Number::BF16 => DType::BF16,
            Number::F32 => DType::F32,
        }
    }

    /// The nearest number of this dtype.
    pub fn rounded(self, x: f32) -> f32 {
        small_float::rounded(x, self.dtype()).expect("a float of at most 32 bits")
    }

    /// The smallest number above 0.
    pub fn smallest(self) -> f32 {
        match self {
            Number::F16 => f16_number(1),
            // Subnormal f32 may be flushed to 0 where weights are decoded.
            Number::BF16 | Number::F32 => f32::MIN_POSITIVE,
        }
    }

    /// Writes `numbers` in this dtype as bytes.
    pub fn store(self, numbers: &[f32], bytes: &mut [u8]) {
        let short = |narrow: fn(f32) -> u16, bytes: &mut [u8]| {
            for (bytes, &x) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(numbers) {
                *bytes = narrow(x).to_le_bytes();
            }
        };
        match self {
            Number::F16 => short(f16_bits, bytes),
            Number::BF16 => short(bf16_bits, bytes),
            Number::F32 => {
                for (bytes, &x) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
                    *bytes = x.to_le_bytes();
                }
            }
        }
    }
}
