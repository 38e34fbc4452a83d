//! A block of weights -> 4-bit codes of a codebook, two a byte, first in the high nibble.

use crate::codebook::{Codebook, LANES};
use crate::span::EncodeBlock;

/// Smallest absmax a block is divided by; bitsandbytes `backends/default/ops.py`, `clamp(min=..)`.
const SMALLEST: f32 = 1e-38;

/// bitsandbytes' 4-bit encoder of blocks of `block_size` weights.
///
/// # Source
/// bitsandbytes 0.50.2 `backends/default/ops.py`, `quantize_4bit`: a full block is multiplied by
/// the rounded inverse of its absmax, a ragged last block is divided by it. An odd tail is padded
/// with the number 0.
pub struct FourBit {
    /// The table of values.
    pub codebook: &'static Codebook,
    /// Weights a block, a power of two from 32 to 4096.
    pub block_size: usize,
}

impl EncodeBlock for FourBit {
    const PER_BYTE: usize = 2;

    #[inline(always)]
    fn encode(&self, weight: &[f32], largest: f32, codes: &mut [u8]) -> f32 {
        let divisor = largest.max(SMALLEST);
        if weight.len() == self.block_size {
            let inverse = 1.0 / divisor;
            self.encode_scaled(weight, |w| w * inverse, codes);
            largest
        } else {
            self.encode_scaled(weight, |w| w / divisor, codes);
            divisor
        }
    }
}

impl FourBit {
    #[inline(always)]
    fn encode_scaled(&self, weight: &[f32], scale: impl Fn(f32) -> f32, packed: &mut [u8]) {
        let packed = packed.chunks_mut(LANES / 2);
        for (weight, packed) in weight.chunks(LANES).zip(packed) {
            // Codes past the end of the weight are that of the number 0.
            let mut scaled = [0.0; LANES];
            for (scaled, &w) in scaled.iter_mut().zip(weight) {
                *scaled = scale(w);
            }
            let codes = self.codebook.nearest(scaled);
            for (byte, pair) in packed.iter_mut().zip(codes.chunks_exact(2)) {
                *byte = (pair[0] << 4) | pair[1];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codebook::{FP4, NF4};

    fn encode(codebook: &'static Codebook, weight: &[f32], largest: f32) -> (Vec<u8>, f32) {
        let encoder = FourBit {
            codebook,
            block_size: 32,
        };
        let mut codes = vec![0xee; weight.len().div_ceil(2)];
        let absmax = encoder.encode(weight, largest, &mut codes);
        (codes, absmax)
    }

    #[test]
    fn zeros_take_the_zero_code_and_only_a_ragged_block_raises_its_absmax() {
        assert_eq!(encode(&NF4, &[0.0; 32], 0.0), (vec![0x77; 16], 0.0));
        assert_eq!(encode(&FP4, &[0.0; 32], 0.0), (vec![0x00; 16], 0.0));
        assert_eq!(encode(&NF4, &[0.0; 6], 0.0), (vec![0x77; 3], SMALLEST));
    }

    #[test]
    fn an_odd_tail_is_padded_with_zero() {
        assert_eq!(encode(&NF4, &[1.0, -1.0, 1.0], 1.0).0, [0xf0, 0xf7]);
        assert_eq!(encode(&FP4, &[1.0, -1.0, 1.0], 1.0).0, [0x3b, 0x30]);
    }

    #[test]
    fn a_number_at_a_midpoint_takes_the_lower_code() {
        for codebook in [&NF4, &FP4] {
            for (i, &midpoint) in codebook.midpoints.iter().enumerate() {
                let block = [midpoint, midpoint.next_up(), midpoint.next_down()];
                let (codes, _) = encode(codebook, &block, 1.0);
                let lower = codebook.order[i];
                // Two zeros of fp4 share a midpoint at 0, whose neighbours are on both sides of it.
                assert_eq!(codes[0] >> 4, lower, "at {midpoint}");
                assert_eq!(codes[0] & 15, codebook.order[i + 1], "above {midpoint}");
                assert_eq!(codes[1] >> 4, lower, "below {midpoint}");
            }
        }
    }
}
