//! A block of weights -> 8-bit codes of the signed dynamic map.

use crate::dynamic_map;
use crate::span::EncodeBlock;

/// bitsandbytes' block-wise 8-bit encoder; also the one of a 4-bit weight's absmax.
///
/// # Source
/// bitsandbytes 0.50.2 `csrc/cpu_ops.cpp`, `quantize_cpu_impl`: every block, the ragged one too, is
/// multiplied by the rounded inverse of its absmax; the codes of an all-zero block are 0.
pub struct EightBit;

impl EncodeBlock for EightBit {
    const PER_BYTE: usize = 1;

    #[inline(always)]
    fn encode(&self, weight: &[f32], largest: f32, codes: &mut [u8]) -> f32 {
        if largest == 0.0 {
            codes.fill(0);
        } else {
            dynamic_map::nearest(weight, 1.0 / largest, codes);
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_all_zero_block_is_coded_as_zeros() {
        let mut codes = [7; 5];
        assert_eq!(EightBit.encode(&[0.0; 5], 0.0, &mut codes), 0.0);
        assert_eq!(codes, [0; 5]);
    }

    #[test]
    fn the_ends_and_the_middle_of_a_block_take_the_maps_codes() {
        let mut codes = [7; 3];
        assert_eq!(EightBit.encode(&[3.0, -3.0, 0.0], 3.0, &mut codes), 3.0);
        assert_eq!(codes, [255, 0, 131]);
    }
}
