//! A seed -> random choices: extents, counts and numbers of the shapes and attributes of a case.

use std::cell::Cell;

use espalier_interface::random::{Purpose, key, philox};

/// Random choices of one seed, in the order in which they are asked for.
#[derive(Clone, Debug)]
pub struct Dice {
    key: [u32; 2],
    rolled: Cell<u32>,
}

impl Dice {
    /// The choices of `seed`.
    pub fn new(seed: u64) -> Self {
        Dice {
            key: key(seed, Purpose::SYNTHETIC, 1),
            rolled: Cell::new(0),
        }
    }

    fn word(&self) -> u32 {
        let at = self.rolled.get();
        self.rolled.set(at + 1);
        philox(self.key, [at, 0, 0, 0])[0]
    }

    /// A number in `0..end`.
    ///
    /// # Panics
    /// Where `end` is 0.
    pub fn below(&self, end: usize) -> usize {
        assert!(end > 0, "a choice of nothing");
        ((u64::from(self.word()) * end as u64) >> 32) as usize
    }

    /// A number in `first..=last`.
    pub fn between(&self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    /// One of `choices`.
    pub fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// True once in `times`.
    pub fn once_in(&self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// A real number in `[low, high)`.
    pub fn real(&self, low: f64, high: f64) -> f64 {
        low + (high - low) * f64::from(self.word()) / 2f64.powi(32)
    }

    /// A positive number whose logarithm is spread evenly over `[low, high)`.
    pub fn scale(&self, low: f64, high: f64) -> f64 {
        self.real(low.ln(), high.ln()).exp()
    }

    /// An extent of at most `most`: few, some, at and about powers of two, odd, any.
    pub fn extent(&self, most: usize) -> usize {
        let extent = match self.below(8) {
            0 => self.between(1, 4),
            1 | 2 => self.between(1, 33),
            3 | 4 => (1usize << self.between(1, 12)) + self.below(3) - 1,
            5 => 2 * self.below(most.div_ceil(2)) + 1,
            _ => self.between(1, most),
        };
        if extent <= most {
            extent
        } else {
            self.between(1, most)
        }
    }

    /// A number of tokens of at most `most`, none once in 16.
    pub fn tokens(&self, most: usize) -> usize {
        if self.once_in(16) {
            0
        } else {
            self.extent(most)
        }
    }

    /// `[T, width]` of ops that take rows; some are few and wide.
    pub fn rows(&self) -> [usize; 2] {
        match self.below(8) {
            0 => [self.tokens(3), self.between(1000, 6000)],
            _ => [self.tokens(140), self.extent(300)],
        }
    }

    /// `[T, N, M]` of a product, of at most a million multiplications.
    pub fn product(&self) -> [usize; 3] {
        let t = self.tokens(200);
        let n = self.extent(300);
        let most = 1_000_000 / (t.max(1) * n);
        [t, n, self.extent(most.clamp(1, 700))]
    }

    /// Elements of a flat run, some of them more than a chunk.
    pub fn length(&self) -> usize {
        match self.below(8) {
            0 => self.between(1000, 70_000),
            _ => self.extent(2000),
        }
    }

    /// A factor, 1 once in four.
    pub fn factor(&self) -> f64 {
        if self.once_in(4) {
            1.0
        } else {
            self.real(-4.0, 4.0)
        }
    }

    /// A power of two of either sign, 1 once in four.
    pub fn power(&self) -> f64 {
        if self.once_in(4) {
            1.0
        } else {
            self.one_of(&[1.0, -1.0]) * 2f64.powi(self.below(11) as i32 - 5)
        }
    }

    /// `total` numbers in an order of chance.
    pub fn order(&self, total: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..total).collect();
        for last in (1..total).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_in_their_range_and_reach_its_ends() {
        let dice = Dice::new(7);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[dice.below(5)] = true;
            assert!((3..=9).contains(&dice.between(3, 9)));
            assert!((1..=130).contains(&dice.extent(130)));
            assert!(dice.tokens(20) <= 20);
            assert!((0.5..2.0).contains(&dice.scale(0.5, 2.0)));
            let [t, n, m] = dice.product();
            assert!(t * n * m <= 1_000_000 && n * m > 0, "{t} {n} {m}");
        }
        assert_eq!(seen, [true; 5]);
    }

    #[test]
    fn a_seed_gives_the_same_choices_and_another_gives_others() {
        let of = |seed| {
            let dice = Dice::new(seed);
            [(); 8].map(|()| dice.below(1000))
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn an_order_has_every_number_once() {
        let mut order = Dice::new(3).order(9);
        assert_ne!(order, (0..9).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..9).collect::<Vec<_>>());
    }
}
