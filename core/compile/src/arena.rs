//! Lifetimes of values -> offsets in one buffer, so that values that never live together share
//! bytes.

/// Alignment of every value, in bytes.
pub const ALIGNMENT: u64 = 64;

/// `bytes` rounded up to the alignment.
pub fn aligned(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGNMENT) * ALIGNMENT
}

/// A value's size, and the steps from the one that writes it to the last that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Size in bytes.
    pub bytes: u64,
    /// First step: the one that writes it.
    pub first: usize,
    /// Last step: the last that reads it; not before `first`.
    pub last: usize,
}

/// Gives each value an offset: the largest first, each at the lowest offset that is free for its
/// whole life. Returns the offsets and the bytes of the buffer.
///
/// # Source
/// "Greedy by size", Pisarchyk and Lee, "Efficient memory management for deep neural net
/// inference", 2020, section 5.2.
pub fn pack(lifetimes: &[Lifetime]) -> (Vec<u64>, u64) {
    let mut order: Vec<usize> = (0..lifetimes.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(lifetimes[i].bytes), lifetimes[i].first, i));
    let mut offsets = vec![0; lifetimes.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut end = 0;
    for &value in &order {
        let life = lifetimes[value];
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|&&other| {
                lifetimes[other].first <= life.last && life.first <= lifetimes[other].last
            })
            .map(|&other| {
                (
                    offsets[other],
                    offsets[other] + aligned(lifetimes[other].bytes),
                )
            })
            .collect();
        taken.sort_unstable();
        let mut at = 0;
        for (begin, stop) in taken {
            if at + aligned(life.bytes) <= begin {
                break;
            }
            at = at.max(stop);
        }
        offsets[value] = at;
        end = end.max(at + aligned(life.bytes));
        placed.push(value);
    }
    (offsets, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(bytes: u64, first: usize, last: usize) -> Lifetime {
        Lifetime { bytes, first, last }
    }

    #[test]
    fn a_chain_needs_two_of_its_values_at_once() {
        let chain: Vec<_> = (0..6).map(|i| life(100, i, i + 1)).collect();
        assert_eq!(pack(&chain).1, 2 * 128);
    }

    #[test]
    fn values_that_live_together_never_overlap() {
        let lives: Vec<_> = (0..40u64)
            .map(|i| {
                life(
                    1 + (i * 97) % 1000,
                    (i * 7 % 31) as usize,
                    (i * 7 % 31 + i % 9) as usize,
                )
            })
            .collect();
        let (offsets, end) = pack(&lives);
        for i in 0..lives.len() {
            assert_eq!(offsets[i] % ALIGNMENT, 0);
            assert!(offsets[i] + lives[i].bytes <= end);
            for j in 0..i {
                let together = lives[i].first <= lives[j].last && lives[j].first <= lives[i].last;
                let apart = offsets[i] + lives[i].bytes <= offsets[j]
                    || offsets[j] + lives[j].bytes <= offsets[i];
                assert!(!together || apart, "values {i} and {j} overlap");
            }
        }
    }
}
