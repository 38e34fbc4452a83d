//! Numbers as little-endian elements of a dtype, both ways.

use espalier_interface::DType;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

/// Little-endian elements of `dtype`, a float, as f64.
pub fn numbers(bytes: &[u8], dtype: DType) -> Vec<f64> {
    match dtype {
        DType::F64 => read(bytes, f64::from_le_bytes),
        DType::F32 => read(bytes, |x| f64::from(f32::from_le_bytes(x))),
        DType::BF16 => read(bytes, |x| bf16::from_le_bytes(x).to_f64()),
        _ => read(bytes, |x| f16::from_le_bytes(x).to_f64()),
    }
}

fn read<const WIDTH: usize>(bytes: &[u8], element: impl Fn([u8; WIDTH]) -> f64) -> Vec<f64> {
    let elements = bytes.as_chunks::<WIDTH>().0;
    elements.iter().map(|&bytes| element(bytes)).collect()
}

/// Little-endian elements of `dtype`, a float, as f32 in `out`; f64 is rounded.
pub fn widen(bytes: &[u8], dtype: DType, out: &mut [f32]) {
    match dtype {
        DType::F64 => into(bytes, out, |x| f64::from_le_bytes(x) as f32),
        DType::F32 => into(bytes, out, f32::from_le_bytes),
        DType::BF16 => into(bytes, out, |x| {
            f32::from_bits(u32::from(u16::from_le_bytes(x)) << 16)
        }),
        _ => widen_f16(bytes, out),
    }
}

fn into<const WIDTH: usize>(bytes: &[u8], out: &mut [f32], element: impl Fn([u8; WIDTH]) -> f32) {
    for (out, &bytes) in out.iter_mut().zip(bytes.as_chunks::<WIDTH>().0) {
        *out = element(bytes);
    }
}

/// f16 through the `half` crate's slice conversion, which uses processor instructions where
/// available.
fn widen_f16(bytes: &[u8], out: &mut [f32]) {
    let mut bits = [0_u16; 4096];
    for (out, bytes) in out.chunks_mut(bits.len()).zip(bytes.chunks(2 * bits.len())) {
        for (bits, pair) in bits.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *bits = u16::from_le_bytes(*pair);
        }
        bits[..out.len()]
            .reinterpret_cast::<f16>()
            .convert_to_f32_slice(out);
    }
}

/// f32 numbers as little-endian elements of `dtype`, a float, in the place of what `out` held.
pub fn write_numbers(values: &[f32], dtype: DType, out: &mut Vec<u8>) {
    out.clear();
    match dtype {
        DType::F64 => write(values, out, |x| f64::from(x).to_le_bytes()),
        DType::F32 => write(values, out, f32::to_le_bytes),
        DType::BF16 => write(values, out, |x| bf16::from_f32(x).to_le_bytes()),
        _ => write_f16(values, out),
    }
}

fn write<const WIDTH: usize>(
    values: &[f32],
    out: &mut Vec<u8>,
    bytes: impl Fn(f32) -> [u8; WIDTH],
) {
    out.resize(values.len() * WIDTH, 0);
    for (out, &x) in out.as_chunks_mut::<WIDTH>().0.iter_mut().zip(values) {
        *out = bytes(x);
    }
}

/// f16 through the `half` crate's slice conversion, as [`widen_f16`].
fn write_f16(values: &[f32], out: &mut Vec<u8>) {
    let mut bits = [0_u16; 4096];
    out.resize(2 * values.len(), 0);
    for (out, values) in out
        .chunks_mut(2 * bits.len())
        .zip(values.chunks(bits.len()))
    {
        let bits = &mut bits[..values.len()];
        bits.reinterpret_cast_mut::<f16>()
            .convert_from_f32_slice(values);
        for (out, bits) in out.as_chunks_mut::<2>().0.iter_mut().zip(bits) {
            *out = bits.to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_in_every_dtype() {
        let values = [0.0f32, -1.5, 3.0e-5, 448.0, f32::INFINITY];
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
            let mut bytes = vec![7; 3];
            write_numbers(&values, dtype, &mut bytes);
            assert_eq!(bytes.len() as u64, 5 * dtype.bytes());
            let back = numbers(&bytes, dtype);
            for (found, expected) in back.into_iter().zip(values.map(f64::from)) {
                let near = (found - expected).abs() <= expected.abs() / 128.0;
                assert!(
                    found == expected || near,
                    "{found} for {expected} in {dtype:?}"
                );
            }
        }
    }

    fn widened(dtype: DType, bytes: &[u8]) -> Vec<f32> {
        let mut out = vec![0.0; bytes.len() / dtype.bytes() as usize];
        widen(bytes, dtype, &mut out);
        out
    }

    #[test]
    fn every_float_widens() {
        let values = [0.0_f32, -1.5, 65504.0, 6.1e-5, f32::INFINITY, -0.0];
        let f32s: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(widened(DType::F32, &f32s), values);
        let f64s: Vec<u8> = values
            .iter()
            .flat_map(|v| f64::from(*v).to_le_bytes())
            .collect();
        assert_eq!(widened(DType::F64, &f64s), values);
        // Every bit pattern of the 16-bit formats, against the crate's element-wise conversion.
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let bf16 = (0..=u16::MAX)
            .map(|b| f32::from_bits(u32::from(b) << 16))
            .collect();
        assert_eq!(bits(widened(DType::BF16, &all)), bits(bf16));
        for (found, pattern) in widened(DType::F16, &all).into_iter().zip(0..=u16::MAX) {
            let expected = half::f16::from_bits(pattern).to_f32();
            assert!(
                found == expected || (found.is_nan() && expected.is_nan()),
                "{pattern:#x}"
            );
        }
    }
}
