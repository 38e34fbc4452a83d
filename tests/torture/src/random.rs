//! A seed, a name and a number -> the same draws every time.

/// Draws of one try.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The draws of try `number` of `name` under `seed`.
    pub fn of(seed: u64, name: &str, number: u64) -> Self {
        let mut random = Random(seed);
        for byte in name.bytes() {
            random.0 = random.bits() ^ u64::from(byte);
        }
        random.0 = random.bits() ^ number;
        random
    }

    /// 64 bits (SplitMix64, Steele, Lea and Flood 2014).
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// One of `things`, which is not empty.
    pub fn of_all<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }

    /// A number from 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// `things` in another order (Fisher and Yates).
    pub fn shuffled<T>(&mut self, mut things: Vec<T>) -> Vec<T> {
        for end in (1..things.len()).rev() {
            things.swap(end, self.below(end + 1));
        }
        things
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_of_a_try_repeat_and_differ_from_those_of_others() {
        let draw = |seed, name, number| Random::of(seed, name, number).bits();
        assert_eq!(draw(1, "kills", 3), draw(1, "kills", 3));
        let others = [
            draw(2, "kills", 3),
            draw(1, "errors", 3),
            draw(1, "kills", 4),
        ];
        assert!(others.iter().all(|&other| other != draw(1, "kills", 3)));
        let mut order = Random::of(1, "order", 0).shuffled((0..100).collect::<Vec<_>>());
        assert_ne!(order, (0..100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
