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

    fn encode_whole(&self, weight: &[f32], codes: &mut [u8], absmax: &mut [u8]) -> usize {
        let nearest = &self.codebook.nearest;
        nearest.encode_blocks(weight, self.block_size, SMALLEST, codes, absmax)
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
            let codes = self.codebook.codes(&scaled);
            for (byte, [first, second]) in packed.iter_mut().zip(codes.as_chunks::<2>().0) {
                *byte = (first << 4) | second;
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

    /// Numbers in [-1, 1] where a code, a sign or the precision changes, each with its neighbours.
    fn edges(codebook: &Codebook) -> Vec<f32> {
        let mut edges = vec![
            0.0,
            -0.0,
            f32::MIN_POSITIVE,
            1e-38,
            1e-40,
            f32::from_bits(1),
        ];
        edges.extend(codebook.midpoints);
        edges.extend(codebook.values);
        let near = |x: f32| [x, -x].map(|x| [x.next_down(), x, x.next_up()]);
        let near = edges.iter().flat_map(|&x| near(x)).flatten();
        near.filter(|x| x.abs() <= 1.0).collect()
    }

    /// The oracle is [`FourBit::encode`], block by block.
    #[test]
    fn whole_blocks_have_the_bits_of_single_ones() {
        // 3.4e38 and 1e-40 have inverses that are subnormal, or that of the smallest absmax.
        let scales = [
            1.0,
            0.0437,
            3.0e-39,
            1e-38,
            1e-40,
            0.0,
            77.7,
            3.4e38,
            f32::MAX,
        ];
        let sizes = [32, 64, 128, 4096].into_iter();
        for (block_size, codebook) in sizes.flat_map(|size| [(size, &NF4), (size, &FP4)]) {
            let encoder = FourBit {
                codebook,
                block_size,
            };
            let steps = (0..20_000u32).map(|i| i.wrapping_mul(2_654_435_761) as i32 as f32);
            let mut unit = edges(codebook);
            unit.extend(steps.map(|step| step / 2_147_483_648.0));
            for scale in scales {
                let mut weight: Vec<f32> = unit.iter().map(|x| x * scale).collect();
                for (i, block) in weight.chunks_mut(block_size).enumerate() {
                    block[i % block.len()] = scale;
                }
                let mut codes = vec![0; weight.len().div_ceil(2)];
                let mut absmax = vec![0; 4 * weight.len().div_ceil(block_size)];
                let done = encoder.encode_whole(&weight, &mut codes, &mut absmax);
                let found = codes.chunks(block_size / 2).zip(absmax.as_chunks().0);
                for (weight, found) in weight.chunks(block_size).zip(found).take(done) {
                    let mut codes = vec![0; block_size / 2];
                    let absmax = encoder.encode(weight, scale, &mut codes).to_le_bytes();
                    assert_eq!(found, (&codes[..], &absmax), "scale {scale:e}");
                }
            }
        }
    }
}
