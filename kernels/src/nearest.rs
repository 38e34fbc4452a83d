//! Blocks of weights -> their largest magnitudes and packed 4-bit codes of the nearest of 16
//! values, with AVX-512.
//!
//! A code follows from the midpoints that a scaled weight passes. Fifteen comparisons, or a search
//! of four steps, take longer than reading the weight. So [-1, 1] is cut into 32 steps with at most
//! one midpoint each, but for two that are listed apart. One permutation of a table finds the
//! midpoint of a weight's step, another the count of midpoints below the step. The step need not be
//! exact: it rises with the weight, so midpoints of other steps are on the right side.
#![allow(unsafe_code)] // Vector intrinsics.

/// Steps in [-1, 1], as many as a permutation of two vectors has places.
const STEPS: usize = 32;

/// Steps in a unit. No midpoint of nf4 or fp4 is near the edge of a step, and |x| = 1 with its
/// rounding is within the steps.
const SCALE: f32 = 14.25;

/// The step of the number 0.
const MIDDLE: f32 = 16.0;

/// Midpoints that may share the step of another one.
const CLOSE: usize = 2;

/// A table of 16 values, prepared for the search of the nearest.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // Read by vector code alone.
pub struct Nearest {
    /// The midpoint in each step, infinite where there is none.
    midpoints: [f32; STEPS],
    /// Midpoints in lower steps, without `close`.
    below: [i32; STEPS],
    /// Midpoints that are compared with every weight; the rest of the array is infinite.
    close: [f32; CLOSE],
    /// Codes by the number of midpoints below a weight.
    order: [i32; 16],
    /// Whether that number is the code and no midpoint is close to another one.
    plain: bool,
    /// What each midpoint adds to the number.
    increment: i32,
}

impl Nearest {
    /// Prepares a table.
    ///
    /// # Shapes
    /// `midpoints`: [15] f32 in [-1, 1], rising; `order`: [16] u8, the codes in rising order of
    /// their values.
    ///
    /// # Panics
    /// Where a midpoint is at the edge of a step, or more than two share the step of another one.
    pub const fn new(midpoints: &[f32; 15], order: &[u8; 16]) -> Self {
        let mut nearest = Nearest {
            midpoints: [f32::INFINITY; STEPS],
            below: [0; STEPS],
            close: [f32::INFINITY; CLOSE],
            order: [0; 16],
            plain: true,
            increment: 1,
        };
        let mut num_close = 0;
        let mut i = 0;
        while i < 15 {
            let place = midpoints[i] * SCALE + MIDDLE + 0.5;
            let step = place as usize;
            let within = place - step as f32;
            assert!(within > 0.01 && within < 0.99, "a midpoint at an edge");
            if nearest.midpoints[step] == f32::INFINITY {
                nearest.midpoints[step] = midpoints[i];
                let mut above = step + 1;
                while above < STEPS {
                    nearest.below[above] += 1;
                    above += 1;
                }
            } else {
                nearest.close[num_close] = midpoints[i];
                num_close += 1;
            }
            i += 1;
        }
        let mut i = 0;
        while i < 16 {
            nearest.order[i] = order[i] as i32;
            nearest.plain &= order[i] as usize == i;
            i += 1;
        }
        nearest.plain &= num_close == 0;
        nearest
    }

    /// Encodes whole blocks from the first on, and returns how many: up to the first with a number
    /// that is not finite, and none where the CPU has no AVX-512.
    ///
    /// The codes are those of `w * (1 / max(largest, smallest))`; a number at a midpoint takes the
    /// lower neighbour.
    ///
    /// # Shapes
    /// `weight`: [n] f32; `codes`: [ceil(n / 2)] u8, two codes a byte, first in the high nibble;
    /// `largest`: [ceil(n / block_size)] f32, the largest magnitude of each block, as little-endian
    /// bytes. `block_size` is a multiple of 32.
    pub fn encode_blocks(
        &self,
        weight: &[f32],
        block_size: usize,
        smallest: f32,
        codes: &mut [u8],
        largest: &mut [u8],
    ) -> usize {
        assert!(block_size > 0 && block_size.is_multiple_of(32));
        #[cfg(target_arch = "x86_64")]
        if crate::simd::has_avx512() {
            let blocks = (weight, codes, largest);
            // SAFETY: the features were detected on this CPU.
            return unsafe {
                match (self.plain, block_size) {
                    (true, 64) => self.avx512::<true, 64>(blocks, 64, smallest),
                    (true, _) => self.avx512::<true, 0>(blocks, block_size, smallest),
                    (false, 64) => self.avx512::<false, 64>(blocks, 64, smallest),
                    (false, _) => self.avx512::<false, 0>(blocks, block_size, smallest),
                }
            };
        }
        let _ = (weight, smallest, codes, largest);
        0
    }

    /// [`Nearest::encode_blocks`] where `plain` is `PLAIN`, and `BLOCK` the block size or 0.
    ///
    /// # Safety
    /// The CPU has the features named here.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    unsafe fn avx512<const PLAIN: bool, const BLOCK: usize>(
        &self,
        (weight, codes, largest): (&[f32], &mut [u8], &mut [u8]),
        block_size: usize,
        smallest: f32,
    ) -> usize {
        use std::arch::x86_64::*;
        const VECTOR: usize = 16;
        // The compiler unrolls loops over a block where it knows the size.
        let block_size = if BLOCK == 0 { block_size } else { BLOCK };
        let blocks = weight.chunks_exact(block_size);
        let packed = codes.chunks_exact_mut(block_size / 2);
        let stored = largest.as_chunks_mut::<4>().0;
        // SAFETY: 32 steps and 16 codes of the tables.
        let (midpoints, below, order) = unsafe {
            let midpoints = self.midpoints.as_ptr();
            let below = self.below.as_ptr();
            (
                [0, VECTOR].map(|i| _mm512_loadu_ps(midpoints.add(i))),
                [0, VECTOR].map(|i| _mm512_loadu_epi32(below.add(i))),
                _mm512_loadu_epi32(self.order.as_ptr()),
            )
        };
        // A number added to 2^23 is rounded to a whole one in the low bits.
        let middle = _mm512_set1_ps(8_388_608.0 + MIDDLE);
        let scale = _mm512_set1_ps(SCALE);
        // Not a constant: that of 1 would make two instructions of a masked addition.
        let increment = _mm512_set1_epi32(self.increment);
        let magnitude = _mm512_set1_epi32(0x7fff_ffff);
        let mut done = 0;
        for ((weight, packed), stored) in blocks.zip(packed).zip(stored) {
            let weight = weight.as_chunks::<VECTOR>().0;
            let mut bits = _mm512_setzero_si512();
            for w in weight {
                // SAFETY: 16 weights.
                let w = unsafe { _mm512_loadu_epi32(w.as_ptr().cast()) };
                bits = _mm512_max_epi32(bits, _mm512_and_si512(w, magnitude));
            }
            let largest = f32::from_bits(_mm512_reduce_max_epi32(bits) as u32);
            if !largest.is_finite() {
                break;
            }
            let divisor = if largest > smallest {
                largest
            } else {
                smallest
            };
            let inverse = _mm512_set1_ps(1.0 / divisor);
            for (w, packed) in weight
                .iter()
                .zip(packed.as_chunks_mut::<{ VECTOR / 2 }>().0)
            {
                // SAFETY: 16 weights.
                let x = _mm512_mul_ps(unsafe { _mm512_loadu_ps(w.as_ptr()) }, inverse);
                let step = _mm512_castps_si512(_mm512_fmadd_ps(x, scale, middle));
                let midpoint = _mm512_permutex2var_ps(midpoints[0], step, midpoints[1]);
                let mut passed = _mm512_permutex2var_epi32(below[0], step, below[1]);
                let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, midpoint);
                passed = _mm512_mask_add_epi32(passed, above, passed, increment);
                let codes = if PLAIN {
                    passed
                } else {
                    for &close in &self.close {
                        let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, _mm512_set1_ps(close));
                        passed = _mm512_mask_add_epi32(passed, above, passed, increment);
                    }
                    _mm512_permutexvar_epi32(passed, order)
                };
                // Two codes lie in 64 bits, the first in the low half.
                let (first, second) = (
                    _mm512_slli_epi64::<4>(codes),
                    _mm512_srli_epi64::<32>(codes),
                );
                let bytes = _mm512_cvtepi64_epi8(_mm512_or_si512(first, second));
                // SAFETY: 8 bytes.
                unsafe { _mm_storel_epi64(packed.as_mut_ptr().cast(), bytes) };
            }
            *stored = largest.to_le_bytes();
            done += 1;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three midpoints share a step, as in fp4.
    const MIDPOINTS: [f32; 15] = [
        -0.85, -0.6, -0.4, -0.3, -0.2, -0.1, -0.003, 0.0, 0.003, 0.1, 0.2, 0.3, 0.4, 0.6, 0.85,
    ];
    const ORDER: [u8; 16] = [9, 8, 15, 14, 13, 12, 11, 10, 0, 1, 2, 3, 4, 5, 6, 7];

    /// The code of `x` by one comparison after the other.
    fn code(x: f32) -> u8 {
        ORDER[MIDPOINTS.iter().filter(|&&midpoint| x > midpoint).count()]
    }

    fn encode(weight: &[f32], block_size: usize) -> (usize, Vec<u8>, Vec<u8>) {
        let mut codes = vec![0xee; weight.len().div_ceil(2)];
        let mut largest = vec![0xee; 4 * weight.len().div_ceil(block_size)];
        let nearest = Nearest::new(&MIDPOINTS, &ORDER);
        let done = nearest.encode_blocks(weight, block_size, 1e-38, &mut codes, &mut largest);
        (done, codes, largest)
    }

    #[test]
    fn codes_are_those_of_one_comparison_after_the_other() {
        let mut weight: Vec<f32> = (0..4096).map(|i| i as f32 / 2048.0 - 1.0).collect();
        for midpoint in MIDPOINTS {
            weight.extend([midpoint.next_down(), midpoint, midpoint.next_up(), -0.0]);
        }
        for block_size in [32, 64, 96] {
            // Each block's largest magnitude is 1, so its weights are the scaled ones.
            let mut weight = weight.clone();
            for block in weight.chunks_mut(block_size) {
                block[0] = -1.0;
            }
            let (done, codes, largest) = encode(&weight, block_size);
            let whole = weight.len() / block_size;
            assert!([0, whole].contains(&done), "all blocks or none");
            for (byte, pair) in codes
                .iter()
                .zip(weight.chunks(2))
                .take(done * block_size / 2)
            {
                assert_eq!(*byte, (code(pair[0]) << 4) | code(pair[1]), "{pair:?}");
            }
            assert!(
                codes[done * block_size / 2..]
                    .iter()
                    .all(|&byte| byte == 0xee)
            );
            let (stored, rest) = largest.split_at(4 * done);
            assert!(
                stored
                    .as_chunks()
                    .0
                    .iter()
                    .all(|&one| f32::from_le_bytes(one) == 1.0)
            );
            assert!(rest.iter().all(|&byte| byte == 0xee));
        }
    }

    #[test]
    fn blocks_end_at_a_number_that_is_not_finite() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in [64, 100, 127] {
                let mut weight = vec![0.5; 256];
                weight[place] = bad;
                let (done, codes, _) = encode(&weight, 64);
                assert!(done <= 1, "block 1 has {bad}");
                assert!(codes[32 * done..].iter().all(|&byte| byte == 0xee));
            }
        }
    }
}
