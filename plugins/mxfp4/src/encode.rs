//! A weight -> codes and scales of its blocks, on the host's threads; numbers that are not finite
//! are refused.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use espalier_interface::{ErrorCode, PluginError, Result, Services};
use espalier_kernels::simd::vectorized;

use crate::block::largest_magnitude;
use crate::{e2m1, e4m3, e8m0};

/// Weights of a span, of which both block sizes are divisors.
const SPAN: usize = 1 << 16;

/// Elements of a block of `mxfp4`.
const MX_BLOCK: usize = 32;

/// Elements of a block of `nvfp4`.
const NV_BLOCK: usize = 16;

/// Weights of a span and where their codes and scales go.
struct Span<'a> {
    weight: &'a [f32],
    codes: &'a mut [u8],
    scales: &'a mut [u8],
}

/// Encodes in blocks of 32 with scales in E8M0.
///
/// # Shapes
/// `weight`: [n] f32, whole blocks; `codes`: [n / 2] u8, the first of two in the low nibble;
/// `scales`: [n / 32] u8.
///
/// # Errors
/// `NOT_FINITE`, naming the flat index of the first weight that is infinite or NaN; `CANCELLED`
/// when the user stopped the run.
pub fn mxfp4(
    weight: &[f32],
    codes: &mut [u8],
    scales: &mut [u8],
    services: &dyn Services,
) -> Result<()> {
    find_largest(weight, services)?;
    let values = e8m0::values();
    let encode = |weight: &[f32; MX_BLOCK], codes: &mut [u8]| {
        let scale = e8m0::code(largest_magnitude(weight));
        write_codes(weight, values[usize::from(scale)], codes);
        scale
    };
    each_block(weight, codes, scales, services, encode)
}

/// Encodes in blocks of 16 with scales in E4M3 over one f32, which brings the scale of the largest
/// block to the largest number of E4M3.
///
/// # Shapes
/// As [`mxfp4`]; scales: [n / 16] u8; the f32: 4 bytes.
///
/// # Errors
/// As [`mxfp4`].
///
/// # Source
/// compressed-tensors 0.20.0 `quantization/utils/helpers.py`, `generate_gparam` and
/// `calculate_qparams`.
pub fn nvfp4(
    weight: &[f32],
    (codes, scales, global): (&mut [u8], &mut [u8], &mut [u8]),
    services: &dyn Services,
) -> Result<()> {
    let number = global_scale(find_largest(weight, services)?);
    global.copy_from_slice(&number.to_le_bytes());
    let values = e4m3::values();
    let encode = |weight: &[f32; NV_BLOCK], codes: &mut [u8]| {
        let scale = number * (largest_magnitude(weight) / e2m1::LARGEST);
        let scale = match e4m3::code(scale) {
            0 => e4m3::code(0.125), // compressed-tensors `_get_dtype_eps`
            code => code,
        };
        write_codes(weight, values[usize::from(scale)] / number, codes);
        scale
    };
    each_block(weight, codes, scales, services, encode)
}

/// The number over which scales are stored; 1 where it would be infinite.
fn global_scale(largest: f32) -> f32 {
    // torch divides a number by a tensor in two steps.
    let number = 1.0 / largest.max(f32::MIN_POSITIVE) * (e4m3::LARGEST * e2m1::LARGEST);
    if number.is_finite() { number } else { 1.0 }
}

/// Codes of the weights over their block's scale, two a byte, the first in the low nibble.
#[inline(always)]
fn write_codes<const SIZE: usize>(weight: &[f32; SIZE], scale: f32, packed: &mut [u8]) {
    let codes: [u8; SIZE] = std::array::from_fn(|i| e2m1::code(weight[i] / scale));
    for (byte, [first, second]) in packed.iter_mut().zip(codes.as_chunks::<2>().0) {
        *byte = first | second << 4;
    }
}

/// The largest magnitude of a weight.
///
/// # Errors
/// As [`mxfp4`].
fn find_largest(weight: &[f32], services: &dyn Services) -> Result<f32> {
    let largest = AtomicU32::new(0);
    let not_finite = AtomicUsize::new(usize::MAX);
    services.parallel_for(weight.len().div_ceil(SPAN), &|i| {
        let span = &weight[i * SPAN..weight.len().min((i + 1) * SPAN)];
        let found = vectorized(
            #[inline(always)]
            || largest_magnitude(span),
        );
        // Bits of numbers without a sign are in their order.
        largest.fetch_max(found.to_bits(), Ordering::Relaxed);
        if !found.is_finite()
            && let Some(index) = span.iter().position(|x| !x.is_finite())
        {
            not_finite.fetch_min(i * SPAN + index, Ordering::Relaxed);
        }
    });
    match not_finite.into_inner() {
        usize::MAX => Ok(f32::from_bits(largest.into_inner())),
        index => Err(PluginError::new(
            ErrorCode::NOT_FINITE,
            format!(
                "weight {index} of {} is {}, expected a finite number; the checkpoint is damaged \
                 or was saved from a diverged run",
                weight.len(),
                weight[index]
            ),
        )),
    }
}

/// Calls `encode` for each block, which writes its codes and returns its scale.
fn each_block<const SIZE: usize>(
    weight: &[f32],
    codes: &mut [u8],
    scales: &mut [u8],
    services: &dyn Services,
    encode: impl Fn(&[f32; SIZE], &mut [u8]) -> u8 + Sync,
) -> Result<()> {
    assert!(codes.len() == weight.len() / 2 && scales.len() == weight.len() / SIZE);
    let codes = codes.chunks_mut(SPAN / 2);
    let scales = scales.chunks_mut(SPAN / SIZE);
    let spans = weight.chunks(SPAN).zip(codes).zip(scales);
    let spans = spans.map(|((weight, codes), scales)| {
        Mutex::new(Span {
            weight,
            codes,
            scales,
        })
    });
    let spans: Vec<Mutex<Span>> = spans.collect();
    services.parallel_for(spans.len(), &|i| {
        if services.cancelled() {
            return;
        }
        let mut span = spans[i].lock().expect("each span is taken once");
        let Span {
            weight,
            codes,
            scales,
        } = &mut *span;
        vectorized(
            #[inline(always)]
            || {
                let blocks = weight.as_chunks::<SIZE>().0.iter();
                let codes = codes.chunks_exact_mut(SIZE / 2);
                for ((weight, codes), scale) in blocks.zip(codes).zip(scales.iter_mut()) {
                    *scale = encode(weight, codes);
                }
            },
        );
    });
    if services.cancelled() {
        return Err(PluginError::new(
            ErrorCode::CANCELLED,
            "encoding was cancelled",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;

    #[test]
    fn weights_of_zeros_have_the_smallest_scales() {
        let (mut codes, mut scales) = ([9; 16], [9; 1]);
        mxfp4(&[0.0; 32], &mut codes, &mut scales, &Serial).expect("finite");
        assert_eq!((codes, scales), ([0; 16], [0]));
        let (mut scales, mut global) = ([9; 2], [9; 4]);
        nvfp4(&[0.0; 32], (&mut codes, &mut scales, &mut global), &Serial).expect("finite");
        assert_eq!((codes, scales), ([0; 16], [e4m3::code(0.125); 2]));
        assert_eq!(f32::from_le_bytes(global), 1.0);
    }

    #[test]
    fn the_first_number_that_is_not_finite_is_named() {
        let mut weight = vec![1.0; SPAN + 64];
        (weight[SPAN + 3], weight[SPAN + 9]) = (f32::NAN, f32::INFINITY);
        let (mut codes, mut scales) = (vec![0; weight.len() / 2], vec![0; weight.len() / 32]);
        let error = mxfp4(&weight, &mut codes, &mut scales, &Serial).expect_err("NaN");
        assert!(
            error.message.contains("weight 65539 of 65600 is NaN"),
            "{error}"
        );
    }
}
