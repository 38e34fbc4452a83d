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
        shuffled(rows, |row| {
            random::philox(key, [row, epoch as u32, 0, (epoch >> 32) as u32])
        })
    }

    /// Whether all epochs have the same order.
    pub(super) fn repeats(self) -> bool {
        self == Order::File
    }
}

/// `0..rows`, sorted by the first two `words` of each, then by row.
///
/// The rows are distributed into buckets by the first bits of their keys, and each bucket is sorted
/// by itself. So only one bucket's keys are in memory: 4 bytes per row in all.
pub(super) fn shuffled(rows: u32, words: impl Fn(u32) -> [u32; 4]) -> Vec<u32> {
    let key_of = |row| {
        let [high, low, ..] = words(row);
        u64::from(high) << 32 | u64::from(low)
    };
    let bits = (rows / ROWS_OF_A_BUCKET)
        .checked_ilog2()
        .map_or(1, |bits| bits + 1);
    let bucket = |row| (key_of(row) >> (u64::BITS - bits)) as usize;
    let mut ends = vec![0u32; 1 << bits];
    for row in 0..rows {
        ends[bucket(row)] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        // The bucket's begin; distributing rows moves it to the bucket's end.
        sum += std::mem::replace(end, sum);
    }
    let mut order = vec![0; rows as usize];
    for row in 0..rows {
        let place = &mut ends[bucket(row)];
        order[*place as usize] = row;
        *place += 1;
    }
    let mut keyed: Vec<(u64, u32)> = Vec::new();
    let mut begin = 0;
    for end in ends {
        let part = &mut order[begin..end as usize];
        keyed.clear();
        keyed.extend(part.iter().map(|&row| (key_of(row), row)));
        keyed.sort_unstable();
        for (place, (_, row)) in part.iter_mut().zip(&keyed) {
            *place = *row;
        }
        begin = end as usize;
    }
    order
}

/// Approximate number of rows in a bucket.
const ROWS_OF_A_BUCKET: u32 = 1 << 12;

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

    #[test]
    fn buckets_give_the_order_of_one_sort() {
        for rows in [0, 1, 2, 4097, 50_000] {
            let words = |row| random::philox([1, 2], [row, 0, 0, 0]);
            let mut sorted: Vec<u32> = (0..rows).collect();
            sorted.sort_by_key(|&row| (words(row)[0], words(row)[1], row));
            assert_eq!(shuffled(rows, words), sorted);
        }
        // Equal keys: by row.
        assert!(shuffled(10_000, |row| [row / 5000, 0, 0, 0]).is_sorted());
    }

    /// Fixes the order itself: a change would make old runs impossible to repeat.
    #[test]
    fn the_order_of_seed_42_stays() {
        let order = Order::Shuffled { seed: 42 };
        assert_eq!(order.of_epoch(0, 8), [6, 1, 2, 5, 7, 0, 3, 4]);
        assert_eq!(order.of_epoch(1, 8), [6, 3, 4, 2, 7, 5, 1, 0]);
    }
}
