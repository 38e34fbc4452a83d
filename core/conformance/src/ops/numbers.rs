//! Numbers <-> the bytes of an operand, and the numbers that operands are filled with.

use espalier_interface::DType;
use half::{bf16, f16};

use super::rounding::nearest;
use crate::weights::gaussian;

/// `n` normal numbers of deviation 1, each as the nearest number of `dtype`.
pub fn drawn(n: usize, dtype: DType, seed: u64) -> Vec<f64> {
    let numbers = gaussian([n as u64, 1], 1.0, seed);
    let numbers = numbers.into_iter();
    numbers.map(|x| nearest(dtype, f64::from(x))).collect()
}

/// Each of `numbers` as the nearest number of `dtype`.
pub fn rounded(dtype: DType, numbers: &[f64]) -> Vec<f64> {
    numbers.iter().map(|&x| nearest(dtype, x)).collect()
}

/// The absolute values.
pub fn absolute(numbers: &[f64]) -> Vec<f64> {
    numbers.iter().map(|x| x.abs()).collect()
}

/// The squares.
pub fn squares(numbers: &[f64]) -> Vec<f64> {
    numbers.iter().map(|x| x * x).collect()
}

/// Integers as numbers.
pub fn integers(numbers: &[i32]) -> Vec<f64> {
    numbers.iter().copied().map(f64::from).collect()
}

/// The bytes of numbers that `dtype` holds exactly.
///
/// # Panics
/// For a dtype that no op has.
pub fn encode(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    fn each<const N: usize>(numbers: &[f64], bytes: impl Fn(f64) -> [u8; N]) -> Vec<u8> {
        numbers.iter().flat_map(|&x| bytes(x)).collect()
    }
    match dtype {
        DType::F64 => each(numbers, f64::to_le_bytes),
        DType::F32 => each(numbers, |x| (x as f32).to_le_bytes()),
        DType::BF16 => each(numbers, |x| bf16::from_f64(x).to_le_bytes()),
        DType::F16 => each(numbers, |x| f16::from_f64(x).to_le_bytes()),
        DType::I64 => each(numbers, |x| (x as i64).to_le_bytes()),
        DType::I32 => each(numbers, |x| (x as i32).to_le_bytes()),
        DType::I8 => each(numbers, |x| (x as i8).to_le_bytes()),
        DType::U8 => each(numbers, |x| [x as u8]),
        other => panic!("the kit fills no operand of {other}"),
    }
}

/// The numbers in `bytes`.
///
/// # Panics
/// As [`encode`].
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        let chunks = bytes.chunks_exact(N);
        let numbers = chunks.map(|chunk| number(chunk.try_into().expect("N bytes")));
        numbers.collect()
    }
    match dtype {
        DType::F64 => each(bytes, f64::from_le_bytes),
        DType::F32 => each(bytes, |x| f64::from(f32::from_le_bytes(x))),
        DType::BF16 => each(bytes, |x| f64::from(bf16::from_le_bytes(x))),
        DType::F16 => each(bytes, |x| f64::from(f16::from_le_bytes(x))),
        DType::I64 => each(bytes, |x| i64::from_le_bytes(x) as f64),
        DType::I32 => each(bytes, |x| f64::from(i32::from_le_bytes(x))),
        DType::I8 => each(bytes, |x| f64::from(i8::from_le_bytes(x))),
        DType::U8 => each(bytes, |[x]| f64::from(x)),
        other => panic!("the kit reads no operand of {other}"),
    }
}
