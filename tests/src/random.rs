//! A key -> a sequence of random numbers.

use espalier_interface::random::{Purpose, key, normal, philox};

/// Random numbers that depend only on their key.
#[derive(Clone, Debug)]
pub struct Random {
    key: [u32; 2],
    next: u32,
}

impl Random {
    /// Those of a case: its number and kind.
    pub fn of(case: u64, kind: u64) -> Self {
        Random {
            key: key(case, Purpose::SYNTHETIC, kind),
            next: 0,
        }
    }

    /// Of the normal distribution.
    pub fn normal(&mut self) -> f64 {
        let [a, b, ..] = self.words();
        f64::from(normal([a, b])[0])
    }

    /// A whole number below `count`.
    pub fn below(&mut self, count: u64) -> u64 {
        (u64::from(self.words()[0]) * count) >> 32
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// True with probability one in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn words(&mut self) -> [u32; 4] {
        self.next += 1;
        philox(self.key, [self.next, 0, 0, 0])
    }
}
