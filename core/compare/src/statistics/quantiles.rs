//! Degrees of freedom -> quantiles of Student's t.
//!
//! Comparisons of a family have the same documents, and most of them the same degrees of freedom.
//! Each quantile is found by iteration, so the lists of the last comparisons are kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Lists that are kept of each kind, of up to 10000 numbers.
const KEPT: usize = 32;

/// Lists of numbers by degrees of freedom and length, the last one that was asked for first.
struct Lists(Mutex<VecDeque<(Key, Arc<[f64]>)>>);

/// The bits of the degrees of freedom, and the number of shares.
type Key = (u64, u32);

impl Lists {
    const fn new() -> Self {
        Lists(Mutex::new(VecDeque::new()))
    }

    /// The list of `freedom` and `count`, made by `make` unless it is kept.
    fn get(&self, freedom: f64, count: u32, make: impl Fn() -> Vec<f64>) -> Arc<[f64]> {
        let key = (freedom.to_bits(), count);
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = {
            let mut all = all();
            let at = all.iter().position(|(theirs, _)| *theirs == key);
            at.and_then(|at| all.remove(at)).map(|(_, list)| list)
        };
        // Others may look for theirs while this one is made.
        let list = kept.unwrap_or_else(|| make().into());
        let mut all = all();
        all.push_front((key, list.clone()));
        all.truncate(KEPT);
        list
    }
}

/// The `at` quantile of Student's t with `freedom` degrees of freedom.
pub fn student_quantile(freedom: f64, at: f64) -> f64 {
    student(freedom).inverse_cdf(at)
}

/// Quantiles of Student's t at the middles of `count` equal shares of its probability, `[count]`.
pub fn student_quantiles(freedom: f64, count: u32) -> Arc<[f64]> {
    static KNOWN: Lists = Lists::new();
    KNOWN.get(freedom, count, || {
        let student = student(freedom);
        let lower = (0..count.div_ceil(2)).map(|part| student.inverse_cdf(middle(part, count)));
        let lower: Vec<f64> = lower.collect();
        let upper = lower.iter().rev().skip(count as usize % 2).map(|t| -t);
        lower.iter().copied().chain(upper).collect()
    })
}

/// Ratios of Student's t to the normal distribution at the same quantiles, `[count]`; 1 where both
/// are 0.
pub fn widenings(freedom: f64, count: u32) -> Arc<[f64]> {
    static KNOWN: Lists = Lists::new();
    KNOWN.get(freedom, count, || {
        let normal = Normal::standard();
        let wide = student_quantiles(freedom, count);
        let ratio = |(part, wide): (u32, &f64)| match normal.inverse_cdf(middle(part, count)) {
            0.0 => 1.0,
            narrow => wide / narrow,
        };
        (0..count).zip(wide.iter()).map(ratio).collect()
    })
}

/// The middle of one of `count` equal shares of the probability.
fn middle(part: u32, count: u32) -> f64 {
    (f64::from(part) + 0.5) / f64::from(count)
}

fn student(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom).expect("a positive number of degrees of freedom")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_are_kept_are_those_of_their_key() {
        // More kinds than are kept, twice, so that some are made again.
        for _ in 0..2 {
            for freedom in (1..=KEPT + 5).map(|freedom| freedom as f64) {
                let list = student_quantiles(freedom, 7);
                let alone = (0..7).map(|part| student_quantile(freedom, middle(part, 7)));
                assert!(list.iter().zip(alone).all(|(a, b)| (a - b).abs() < 1e-9));
                assert_eq!(list.len(), 7);
                assert_eq!(widenings(freedom, 7)[3], 1.0);
                assert!(widenings(freedom, 7)[0] > 1.0);
            }
        }
    }
}
