//! A run's seed and an epoch -> the order of its sequences.

use espalier_interface::random::{self, Purpose};

/// How the sequences of an epoch are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As in the files, every epoch.
    File,
    /// By a random key of `(seed, row, epoch)`; ties by row.
    Shuffled { seed: u64 },
}

impl Order {
    /// The order of `epoch` over `rows` sequences: a permutation of `0..rows`.
    pub(super) fn of_epoch(self, epoch: u64, rows: usize) -> Vec<u32> {
        // The dataset holds at most u32::MAX sequences.
        let rows = rows as u32;
        let Order::Shuffled { seed } = self else {
            return (0..rows).collect();
        };
        let key = random::key(seed, Purpose::SHUFFLE, 0);
        let mut keyed: Vec<(u64, u32)> = (0..rows)
            .map(|row| {
                let words = random::philox(key, [row, epoch as u32, 0, (epoch >> 32) as u32]);
                (u64::from(words[0]) << 32 | u64::from(words[1]), row)
            })
            .collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|(_, row)| row).collect()
    }

    /// Whether all epochs are alike.
    pub(super) fn repeats(self) -> bool {
        self == Order::File
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_order_is_the_identity() {
        assert_eq!(Order::File.of_epoch(3, 4), [0, 1, 2, 3]);
        assert!(Order::File.repeats());
    }

    #[test]
    fn shuffled_orders_are_permutations_that_differ() {
        let order = Order::Shuffled { seed: 42 };
        let (first, second) = (order.of_epoch(0, 100), order.of_epoch(1, 100));
        assert_ne!(first, second);
        assert_eq!(first, order.of_epoch(0, 100));
        assert_ne!(first, Order::Shuffled { seed: 43 }.of_epoch(0, 100));
        for mut rows in [first, second] {
            rows.sort_unstable();
            assert!(rows.into_iter().eq(0..100));
        }
    }

    /// Pins the order itself: it must stay for ever, or no run could be repeated.
    #[test]
    fn the_order_of_seed_42_stays() {
        let order = Order::Shuffled { seed: 42 };
        assert_eq!(order.of_epoch(0, 8), [6, 1, 2, 5, 7, 0, 3, 4]);
        assert_eq!(order.of_epoch(1, 8), [6, 3, 4, 2, 7, 5, 1, 0]);
    }
}
