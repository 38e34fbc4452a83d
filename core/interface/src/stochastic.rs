//! f32 numbers and random bits -> bf16, up or down with the probability that keeps the mean.
//!
//! A number between two neighbours of bf16 becomes the farther from zero with the probability of
//! its distance from the nearer to zero, over the neighbours' distance. So its expected value is
//! the number, and updates below half an ulp are not lost. Its 16 random bits are a function of the
//! run's seed, the step, the param's name and the element's index in the whole param, so that they
//! depend on no rank, no cut and no order.
//!
//! # Source
//! torchao's `_fp32_to_bf16_sr` (`torchao/optim/quant_utils.py`): the same probabilities.

use crate::random::{self, Purpose, philox};

/// Elements whose bits come of one block of Philox.
pub const BLOCK: usize = 8;

/// The scalars of an op that rounds stochastically, in the order that [`RandomBits::of_scalars`]
/// takes them in.
pub const SCALARS: [&str; 6] = [
    "seed_low",
    "seed_high",
    "step",
    "name_low",
    "name_high",
    "first",
];

/// The random bits of a param's elements in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomBits {
    key: [u32; 2],
    name: [u32; 2],
}

impl RandomBits {
    /// Those of the param whose name has the words `name` ([`name_words`]), in step `step` of a run
    /// with `seed`.
    pub fn new(seed: u64, step: u64, name: [u32; 2]) -> Self {
        RandomBits {
            key: random::key(seed, Purpose::ROUNDING, step),
            name,
        }
    }

    /// Those that the values of [`SCALARS`] at a launch name, and the index in the param of the
    /// launch's first element.
    pub fn of_scalars([low, high, step, name_low, name_high, first]: [f64; 6]) -> (Self, u64) {
        let name = [name_low as u32, name_high as u32];
        let bits = RandomBits::new(random::seed([low, high]), step as u64, name);
        (bits, first as u64)
    }

    /// The key of Philox and the words of the name, for a device that draws the bits itself.
    pub fn words(self) -> [[u32; 2]; 2] {
        [self.key, self.name]
    }

    /// The bits of the elements from `first` on.
    pub fn fill(&self, first: u64, bits: &mut [u16]) {
        let (mut block, mut skipped) = (first / BLOCK as u64, (first % BLOCK as u64) as usize);
        let mut rest = bits;
        while !rest.is_empty() {
            let all = self.block(block);
            let count = (BLOCK - skipped).min(rest.len());
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&all[skipped..skipped + count]);
            (rest, block, skipped) = (later, block + 1, 0);
        }
    }

    /// The bits of the elements of a block, from `8 block` on.
    #[inline]
    pub fn block(&self, block: u64) -> [u16; BLOCK] {
        let [low, high] = self.name;
        let words = philox(self.key, [block as u32, low, high, (block >> 32) as u32]);
        let mut bits = [0; BLOCK];
        for (pair, word) in bits.chunks_exact_mut(2).zip(words) {
            pair.copy_from_slice(&[word as u16, (word >> 16) as u16]);
        }
        bits
    }
}

/// The low and the high word of the 64-bit FNV-1a hash of a param's name.
///
/// # Source
/// Fowler, Noll and Vo (`draft-eastlake-fnv`).
pub fn name_words(name: &str) -> [u32; 2] {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    [hash as u32, (hash >> 32) as u32]
}

/// The bits of the bf16 that `x` becomes by 16 random bits. NaN and infinities stay.
#[inline(always)]
pub fn bf16_bits(x: f32, random: u16) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(u32::from(random)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    let nan = bits & 0x7FFF_FFFF > 0x7F80_0000;
    (if nan { quiet } else { rounded }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    #[test]
    fn all_bits_together_keep_the_mean() {
        for x in [1.0f32, 1.001, -1.003, 3e-20, -0.1, 255.3, 1.999_999_9] {
            let sum: f64 = (0..=u16::MAX)
                .map(|r| f64::from(number(bf16_bits(x, r))))
                .sum();
            let mean = sum / 65_536.0;
            assert!((mean / f64::from(x) - 1.0).abs() < 1e-12, "{x}: {mean}");
        }
        for x in [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, 1.5] {
            for random in [0, 1, u16::MAX] {
                assert_eq!(number(bf16_bits(x, random)).to_bits(), x.to_bits());
            }
        }
        assert!(number(bf16_bits(f32::from_bits(0x7F80_0001), u16::MAX)).is_nan());
    }

    #[test]
    fn bits_are_those_of_the_element_wherever_it_stands() {
        let name = name_words("model.norm.weight");
        let bits = RandomBits::new(7, 3, name);
        let mut all = [0; 100];
        bits.fill(0, &mut all);
        for (first, count) in [(0, 3), (5, 60), (8, 8), (63, 37)] {
            let mut part = vec![0; count];
            bits.fill(first as u64, &mut part);
            assert_eq!(part, all[first..first + count], "from {first}");
        }
        for other in [
            RandomBits::new(8, 3, name),
            RandomBits::new(7, 4, name),
            RandomBits::new(7, 3, name_words("model.norm.bias")),
        ] {
            assert_ne!(other.block(0), bits.block(0));
        }
        // Beyond 2^35 elements the high word counts.
        assert_ne!(bits.block(1 << 32), bits.block(0));
    }

    /// The vectors of the authors (`draft-eastlake-fnv`).
    #[test]
    fn names_have_the_hash_of_fnv() {
        let hash = |name| {
            let [low, high] = name_words(name);
            u64::from(high) << 32 | u64::from(low)
        };
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }
}
