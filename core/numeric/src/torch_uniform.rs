//! A key -> the uniform numbers that PyTorch's generator of the CPU draws: MT19937 (Matsumoto and
//! Nishimura 1998), 24 bits a number.

/// Words of the state (ibid., table II).
const WORDS: usize = 624;

/// Distance of the word that a new one is mixed with (ibid., table II).
const MIDDLE: usize = 397;

/// Fills `out` with numbers in `[-bound, bound)`, those behind the first `skip` of the generator
/// that `torch.Generator(device="cpu").manual_seed(key)` makes, as `Tensor.uniform_` writes them to
/// f32.
///
/// # Source
/// PyTorch, `at::uniform_real_distribution<float>`: the lower 24 bits of a word, computed in f64.
pub fn torch_uniform(key: u64, skip: u64, bound: f64, out: &mut [f32]) {
    let mut words = Words::new(key as u32);
    (0..skip).for_each(|_| {
        words.next();
    });
    let [from, to] = [-bound, bound].map(|end| f64::from(end as f32));
    for out in out {
        let fraction = f64::from(words.next() & 0xff_ffff) / f64::from(1 << 24);
        *out = (fraction * (to - from) + from) as f32;
    }
}

/// The words of MT19937.
struct Words {
    state: [u32; WORDS],
    at: usize,
}

impl Words {
    /// # Source
    /// The authors' `init_genrand`, 2002.
    fn new(seed: u32) -> Self {
        let mut state = [seed; WORDS];
        for index in 1..WORDS {
            let last = state[index - 1];
            let mixed = 1_812_433_253_u32.wrapping_mul(last ^ last >> 30); // ibid.
            state[index] = mixed.wrapping_add(index as u32);
        }
        Words { state, at: WORDS }
    }

    fn next(&mut self) -> u32 {
        if self.at == WORDS {
            self.renew();
        }
        let mut word = self.state[self.at];
        self.at += 1;
        // The tempering of Matsumoto and Nishimura 1998, table II.
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    /// The next 624 words (ibid., equation 2.1).
    fn renew(&mut self) {
        for index in 0..WORDS {
            let low = self.state[(index + 1) % WORDS] & 0x7fff_ffff;
            let mixed = self.state[index] & 0x8000_0000 | low;
            let twist = if mixed & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[index] = self.state[(index + MIDDLE) % WORDS] ^ mixed >> 1 ^ twist;
        }
        self.at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 10000th word of `std::mt19937` seeded with 5489 is 4123659995 (C++11, section 26.5.5).
    #[test]
    fn words_are_those_of_the_standard() {
        let mut words = Words::new(5489);
        (1..10_000).for_each(|_| {
            words.next();
        });
        assert_eq!(words.next(), 4_123_659_995);
    }

    /// The bits that PyTorch 2.13 draws: `torch.empty(1408).uniform_(-b, b, generator=g)` with `b =
    /// sqrt(6 / 176)` and `g` seeded with 2^40 + 5, then 4 more.
    #[test]
    fn numbers_are_pytorchs_bits() {
        let bound = (6.0f64 / 176.0).sqrt();
        let mut drawn = [0.0; 1412];
        torch_uniform((1 << 40) + 5, 0, bound, &mut drawn);
        let bits: Vec<u32> = drawn[..4].iter().map(|x| x.to_bits()).collect();
        assert_eq!(
            bits,
            [1_039_778_509, 3_188_547_998, 1_041_896_531, 1_039_266_777]
        );
        let mut behind = [0.0; 4];
        torch_uniform((1 << 40) + 5, 1408, bound, &mut behind);
        assert_eq!(behind, drawn[1408..]);
    }
}
