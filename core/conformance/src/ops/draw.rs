//! Where cases take their shapes, attributes and numbers from: the fixed kit, or a seed.
//!
//! A function of cases states both: what the kit has, and how to draw the like at random. It makes
//! all cases of the kit, or one case of a seed.

use espalier_interface::DType;
use espalier_interface::random::{Purpose, key, philox};

use super::dice::Dice;
use super::numbers::drawn;
use super::rounding::nearest;

/// The source of shapes, attributes and numbers of cases.
#[derive(Clone, Debug)]
pub struct Draw {
    random: Option<(u64, Dice)>,
}

impl Draw {
    /// The fixed kit: the same cases in every run.
    pub const KIT: Draw = Draw { random: None };

    /// Random shapes and numbers of `seed`.
    pub fn seeded(seed: u64) -> Self {
        Draw {
            random: Some((seed, Dice::new(seed))),
        }
    }

    fn dice(&self) -> Option<&Dice> {
        self.random.as_ref().map(|(_, dice)| dice)
    }

    /// What the kit has, or what `roll` makes of a seed.
    pub fn or<T>(&self, kit: T, roll: impl FnOnce(&Dice) -> T) -> T {
        self.dice().map_or(kit, roll)
    }

    /// As [`Draw::or`], of a kit that is made only where it is asked for.
    pub fn or_else<T>(&self, kit: impl FnOnce() -> T, roll: impl FnOnce(&Dice) -> T) -> T {
        self.dice().map_or_else(kit, roll)
    }

    /// What the kit has, or one of `choices`.
    pub fn or_one_of<T: Copy>(&self, kit: T, choices: &[T]) -> T {
        self.or(kit, |dice| dice.one_of(choices))
    }

    /// All of `choices` for the kit, or one of them.
    pub fn each<T: Copy>(&self, choices: &[T]) -> Vec<T> {
        self.shapes(choices, |dice| dice.one_of(choices))
    }

    /// The shapes of the kit, or a random one.
    pub fn shapes<T: Copy>(&self, kit: &[T], roll: impl FnOnce(&Dice) -> T) -> Vec<T> {
        self.dice()
            .map_or_else(|| kit.to_vec(), |dice| vec![roll(dice)])
    }

    /// The seed of stream `stream` of random numbers; of the kit `stream` itself.
    pub fn seed(&self, stream: u64) -> u64 {
        self.random.as_ref().map_or(stream, |(seed, _)| {
            let words = philox(key(*seed, Purpose::SYNTHETIC, 2 + stream), [0; 4]);
            u64::from(words[0]) << 32 | u64::from(words[1])
        })
    }

    /// `n` normal numbers of deviation 1, each as the nearest number of `dtype`.
    pub fn normal(&self, n: usize, dtype: DType, stream: u64) -> Vec<f64> {
        drawn(n, dtype, self.seed(stream))
    }

    /// As [`Draw::normal`] for the kit. Those of a seed are also small or large, positive, or half
    /// of them zero. A stream has the same numbers whenever it is asked for.
    pub fn numbers(&self, n: usize, dtype: DType, stream: u64) -> Vec<f64> {
        let mut numbers = self.normal(n, dtype, stream);
        if self.random.is_none() {
            return numbers;
        }
        let dice = Dice::new(self.seed(stream));
        match dice.below(8) {
            0 => {
                let zeros = self.normal(n, DType::F32, stream + (1 << 32));
                let pairs = numbers.iter_mut().zip(zeros);
                pairs
                    .filter(|(_, zero)| *zero > 0.0)
                    .for_each(|(x, _)| *x = 0.0);
            }
            1 => numbers.iter_mut().for_each(|x| *x = x.abs()),
            2 | 3 => {
                let scale = dice.scale(1.0 / 256.0, 8.0);
                numbers
                    .iter_mut()
                    .for_each(|x| *x = nearest(dtype, *x * scale));
            }
            _ => {}
        }
        numbers
    }

    /// A row's own indices below `width`, or -100 once in five.
    pub fn indices(&self, kit: Vec<i32>, width: usize) -> Vec<i32> {
        let t = kit.len();
        self.or(kit, |dice| {
            let index = |_| match dice.below(5) {
                0 => super::oracle::IGNORED,
                1 => width as i32 - 1,
                _ => dice.below(width) as i32,
            };
            (0..t).map(index).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kit_s_numbers_are_those_of_its_streams() {
        let kit = Draw::KIT.numbers(9, DType::BF16, 3);
        assert_eq!(kit, drawn(9, DType::BF16, 3));
        assert_eq!(Draw::KIT.each(&[1, 2]), [1, 2]);
        assert_eq!(Draw::KIT.or(1, |_| 2), 1);
    }

    #[test]
    fn a_seed_gives_one_shape_and_its_own_numbers_to_each_stream() {
        let draw = Draw::seeded(5);
        assert_eq!(draw.each(&[1, 2]).len(), 1);
        let [first, second] = [1, 2].map(|stream| draw.normal(9, DType::F32, stream));
        assert_ne!(first, second);
        assert_eq!(first, Draw::seeded(5).normal(9, DType::F32, 1));
        assert_ne!(first, Draw::seeded(6).normal(9, DType::F32, 1));
    }

    #[test]
    fn a_stream_has_the_same_numbers_whenever_it_is_asked_for() {
        for seed in 0..64 {
            let draw = Draw::seeded(seed);
            let [first, second] = [(); 2].map(|()| draw.numbers(9, DType::F32, 1));
            assert_eq!(first, second);
        }
    }

    #[test]
    fn numbers_of_a_seed_are_numbers_of_the_dtype() {
        for seed in 0..64 {
            let numbers = Draw::seeded(seed).numbers(65, DType::BF16, 1);
            let rounded: Vec<f64> = numbers.iter().map(|&x| nearest(DType::BF16, x)).collect();
            assert_eq!(numbers, rounded);
        }
    }
}
