//! Counter-based random numbers, which are the same for every backend, thread count and world size.
//!
//! Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, table 2).
//! The key is made of seed, purpose and step; the counter is the position within them (see
//! [`Purpose`]). So a number depends on what it is for, and never on what was drawn before it.

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57]; // Salmon et al. 2011, section 4.3
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85]; // golden ratio and sqrt(3) - 1, ibid.

/// What random numbers are for; the high word of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Purpose(pub u32);

impl Purpose {
    /// Initial values of params; counter `(element block, param, 0, 0)`.
    pub const INIT: Purpose = Purpose(1);
    /// Dropout masks; counter `(channel block, position, sequence in the step, site)`, with the
    /// step in the key.
    pub const DROPOUT: Purpose = Purpose(2);
    /// The order of rows; counter `(row, epoch, 0, 0)`.
    pub const SHUFFLE: Purpose = Purpose(3);
    /// Sampling of tokens; counter `(position in the answer, prompt, 0, 0)`.
    pub const SAMPLING: Purpose = Purpose(5);
    /// Stochastic rounding; counter `(block of 8 elements, low and high word of the param's name,
    /// high word of the block)`, with the step in the key: see [`crate::stochastic`].
    pub const ROUNDING: Purpose = Purpose(6);
    /// Synthetic inputs of tests and benches.
    pub const SYNTHETIC: Purpose = Purpose(4);
}

/// The 128-bit block of counter `counter` under `key`.
#[inline]
pub fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let (mut k, mut c) = (key, counter);
    for _ in 0..10 {
        let p0 = u64::from(MULTIPLIER[0]) * u64::from(c[0]);
        let p1 = u64::from(MULTIPLIER[1]) * u64::from(c[2]);
        c = [
            (p1 >> 32) as u32 ^ c[1] ^ k[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ c[3] ^ k[1],
            p0 as u32,
        ];
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    c
}

/// A run's seed from the scalars of an op: its low and its high half, each a whole number below
/// 2^32.
pub fn seed([low, high]: [f64; 2]) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The key of `purpose` under the run's `seed`; `step` separates the steps of one run.
#[inline]
pub fn key(seed: u64, purpose: Purpose, step: u64) -> [u32; 2] {
    let mixed = philox(
        [seed as u32, (seed >> 32) as u32],
        [purpose.0, step as u32, (step >> 32) as u32, 0],
    );
    [mixed[0], mixed[1]]
}

/// A uniform number in `[0, 1)` with 24 random bits.
#[inline]
pub fn uniform(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// Two independent standard normal numbers from two words (Box and Muller 1958).
#[inline]
pub fn normal(words: [u32; 2]) -> [f32; 2] {
    // 1 - u is in (0, 1], so the logarithm is finite.
    let radius = (-2.0 * (1.0 - f64::from(uniform(words[0]))).ln()).sqrt();
    let angle = std::f64::consts::TAU * f64::from(uniform(words[1]));
    [(radius * angle.cos()) as f32, (radius * angle.sin()) as f32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of the authors' Random123 1.09 (`kat_vectors`).
    #[test]
    fn equals_the_authors_vectors() {
        assert_eq!(
            philox([0, 0], [0; 4]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox([u32::MAX; 2], [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn normal_numbers_have_unit_variance() {
        let n = 20_000u32;
        let (mut sum, mut square) = (0.0f64, 0.0f64);
        for i in 0..n {
            let w = philox([1, 2], [i, 0, 0, 0]);
            for x in normal([w[0], w[1]]) {
                sum += f64::from(x);
                square += f64::from(x * x);
            }
        }
        let count = f64::from(2 * n);
        assert!((sum / count).abs() < 0.02, "mean {}", sum / count);
        assert!(
            (square / count - 1.0).abs() < 0.03,
            "variance {}",
            square / count
        );
    }
}
