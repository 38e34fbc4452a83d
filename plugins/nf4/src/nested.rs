//! A 4-bit weight's absmax -> 8-bit codes, nested absmax and an offset (double quantization).

use std::sync::Mutex;

use espalier_interface::{PluginError, Result, Services};
use espalier_kernels::simd::vectorized;

use crate::eight_bit::EightBit;
use crate::mean::mean;
use crate::span::{EncodeBlock, largest_magnitude};

/// absmax values that share a nested absmax; bitsandbytes `functional.py`, `quantize_4bit`.
pub const NESTED_BLOCK_SIZE: usize = 256;

/// Nested blocks that one thread takes at a time.
const SPAN_BLOCKS: usize = 64;

/// A double-quantized absmax, to be written. Numbers are little-endian bytes.
pub struct Nested<'a> {
    /// Codes of the signed dynamic map, [b] u8.
    pub codes: &'a mut [u8],
    /// The absmax of each 256 of `absmax - offset`, [ceil(b / 256)] f32.
    pub absmax: &'a mut [u8],
    /// The mean of `absmax`, [1] f32.
    pub offset: &'a mut [u8],
}

/// Encodes `absmax`, [b] finite f32 as little-endian bytes.
///
/// # Errors
/// `INVALID` where the mean overflows f32.
///
/// # Source
/// bitsandbytes 0.50.2 `functional.py`, `quantize_4bit(compress_statistics=True)`.
pub fn encode_absmax(absmax: &[u8], nested: Nested, services: &dyn Services) -> Result<()> {
    let offset = mean(absmax);
    if !offset.is_finite() {
        return Err(PluginError::invalid(
            "the mean of the blocks' absmax overflows f32, expected weights of ordinary size; \
             set double_quant = false",
        ));
    }
    nested.offset.copy_from_slice(&offset.to_le_bytes());
    let spans: Vec<Mutex<_>> = absmax
        .chunks(4 * SPAN_BLOCKS * NESTED_BLOCK_SIZE)
        .zip(nested.codes.chunks_mut(SPAN_BLOCKS * NESTED_BLOCK_SIZE))
        .zip(nested.absmax.chunks_mut(4 * SPAN_BLOCKS))
        .map(Mutex::new)
        .collect();
    services.parallel_for(spans.len(), &|i| {
        let mut span = spans[i].lock().expect("each span is taken once");
        let ((absmax, codes), nested) = &mut *span;
        vectorized(
            #[inline(always)]
            || encode_span(absmax, offset, codes, nested),
        );
    });
    Ok(())
}

/// Encodes the nested blocks of one span.
#[inline(always)]
fn encode_span(absmax: &[u8], offset: f32, codes: &mut [u8], nested: &mut [u8]) {
    let blocks = absmax.chunks(4 * NESTED_BLOCK_SIZE);
    let codes = codes.chunks_mut(NESTED_BLOCK_SIZE);
    for ((absmax, codes), nested) in blocks.zip(codes).zip(nested.chunks_mut(4)) {
        let mut centred = [0.0; NESTED_BLOCK_SIZE];
        for (c, absmax) in centred.iter_mut().zip(absmax.chunks_exact(4)) {
            *c = f32::from_le_bytes(absmax.try_into().expect("four bytes")) - offset;
        }
        let centred = &centred[..codes.len()];
        let largest = EightBit.encode(centred, largest_magnitude(centred), codes);
        nested.copy_from_slice(&largest.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use espalier_interface::{ErrorCode, Serial};

    fn encode(absmax: &[f32]) -> Result<(Vec<u8>, Vec<f32>, f32)> {
        let bytes: Vec<u8> = absmax.iter().flat_map(|a| a.to_le_bytes()).collect();
        let mut codes = vec![9; absmax.len()];
        let mut nested = vec![9; 4 * absmax.len().div_ceil(NESTED_BLOCK_SIZE)];
        let mut offset = [9; 4];
        let out = Nested {
            codes: &mut codes,
            absmax: &mut nested,
            offset: &mut offset,
        };
        encode_absmax(&bytes, out, &Serial)?;
        let nested = nested
            .chunks(4)
            .map(|n| f32::from_le_bytes(n.try_into().expect("four bytes")));
        Ok((codes, nested.collect(), f32::from_le_bytes(offset)))
    }

    #[test]
    fn equal_absmax_leave_only_the_offset() {
        assert_eq!(encode(&[0.25; 3]), Ok((vec![0; 3], vec![0.0], 0.25)));
    }

    #[test]
    fn each_256_have_their_own_absmax() {
        let mut absmax = vec![1.0; 257];
        absmax[256] = 258.0;
        let (codes, nested, offset) = encode(&absmax).expect("finite");
        assert_eq!((offset, nested), (2.0, vec![1.0, 256.0]));
        assert_eq!((codes[0], codes[255], codes[256]), (0, 0, 255));
    }

    #[test]
    fn an_overflowing_mean_is_refused_with_the_next_step() {
        let error = encode(&[3e38; 2]).expect_err("the sum overflows");
        assert_eq!(error.code, ErrorCode::INVALID);
        assert!(error.message.contains("double_quant = false"));
    }
}
