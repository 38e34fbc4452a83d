//! The losses of several arms under the same seeds -> the variance over seeds of the difference of
//! two of them.
//!
//! Two arms under S seeds estimate their variance with S - 1 degrees of freedom. For three seeds
//! these are 2: Student's t is 4.3, and no difference survives a correction for many arms. K arms
//! under the same seeds are a two-way layout. Its residuals have (K - 1)(S - 1) degrees of freedom
//! if the arms' variances are equal. For unequal variances there are two rules:
//!
//! - an arm with a far larger variance than all others (F test of the residuals with and without
//!   it) is left out of the pool. So it does not hide differences of the others;
//! - two arms whose difference has a larger variance than the pool are tested with their own
//!   variance. The part beyond the pool has its own S - 1 degrees of freedom (Satterthwaite), so
//!   the test stays close to that of two arms alone.
//!
//! `tests/tests/compare_family.rs` measures error rates for equal variances, and for one or several
//! arms with 3 to 16 times the scatter.
//!
//! # Source
//! The two-way layout: Scheffé, "The Analysis of Variance", 1959, section 4.2; degrees of freedom
//! of a sum of variances: Satterthwaite, Biometrics Bulletin 2, 1946.

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::variance::sample_variance;

/// Significance level of the test by which an arm is left out of the pool.
const LEFT_OUT: f64 = 0.001;

/// The variance over seeds of the difference of two arms, pooled over all arms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pool {
    /// Variance of the difference of two arms' losses under a seed.
    variance: f64,
    freedom: f64,
}

/// The uncertainty of the mean difference over seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Variance of the mean.
    pub variance: f64,
    /// Degrees of freedom of that variance.
    pub freedom: f64,
}

impl Pool {
    /// From the arms' losses per token, `[K][S]`; `None` of fewer than three arms or two seeds,
    /// which cannot be pooled.
    pub fn of(arms: &[Vec<f64>]) -> Option<Self> {
        let seeds = arms.first()?.len();
        if arms.len() < 3 || seeds < 2 {
            return None;
        }
        let own = (seeds - 1) as f64;
        let mut kept: Vec<&[f64]> = arms.iter().map(Vec::as_slice).collect();
        // At least half of the arms stay in the pool.
        while kept.len() > arms.len().div_ceil(2).max(2) {
            let (place, rest) = most_variable(&kept);
            let freedom = (kept.len() - 2) as f64 * own;
            let excess = (residuals(&kept) - rest) / own;
            if !is_far_more(excess, own, rest / freedom, freedom) {
                break;
            }
            kept.remove(place);
        }
        let freedom = (kept.len() - 1) as f64 * own;
        Some(Pool {
            variance: 2.0 * residuals(&kept) / freedom,
            freedom,
        })
    }
}

impl Spread {
    /// From two arms' differences under several seeds; `None` of fewer than two.
    pub fn of(by_seed: &[f64], pool: Option<&Pool>) -> Option<Self> {
        let own = sample_variance(by_seed)?;
        let own_freedom = (by_seed.len() - 1) as f64;
        let pooled = pool.map_or(0.0, |pool| pool.variance);
        let excess = (own - pooled).max(0.0);
        let variance = pooled + excess;
        let pool_freedom = pool.map_or(own_freedom, |pool| pool.freedom);
        let parts = [(pooled, pool_freedom), (excess, own_freedom)];
        Some(Spread {
            variance: variance / by_seed.len() as f64,
            freedom: satterthwaite(&parts, own_freedom),
        })
    }
}

/// The degrees of freedom of a sum of variances, each with its own; `fallback` where all are 0.
pub fn satterthwaite(parts: &[(f64, f64)], fallback: f64) -> f64 {
    let whole: f64 = parts.iter().map(|(variance, _)| variance).sum();
    let known = parts
        .iter()
        .filter(|(variance, freedom)| *variance > 0.0 && *freedom > 0.0);
    let squares = known.map(|(variance, freedom)| (variance / whole).powi(2) / freedom);
    let freedom = 1.0 / squares.sum::<f64>();
    if freedom.is_finite() {
        freedom
    } else {
        fallback
    }
}

/// The arm whose removal leaves the smallest residuals, and these residuals.
fn most_variable(arms: &[&[f64]]) -> (usize, f64) {
    let without = |place: usize| {
        let rest = arms.iter().enumerate().filter(|(at, _)| *at != place);
        let rest: Vec<&[f64]> = rest.map(|(_, arm)| *arm).collect();
        (place, residuals(&rest))
    };
    let all = (0..arms.len()).map(without);
    all.min_by(|a, b| a.1.total_cmp(&b.1)).expect("three arms")
}

/// The residual sum of squares after the means by arm and by seed.
fn residuals(arms: &[&[f64]]) -> f64 {
    let seeds = arms[0].len();
    let mean = |values: &mut dyn Iterator<Item = f64>, count: usize| -> f64 {
        values.sum::<f64>() / count as f64
    };
    let of_arms: Vec<f64> = arms
        .iter()
        .map(|arm| mean(&mut arm.iter().copied(), seeds))
        .collect();
    let of_all = mean(&mut of_arms.iter().copied(), arms.len());
    let of_seed = |seed: usize| mean(&mut arms.iter().map(|arm| arm[seed]), arms.len());
    let squares = (0..seeds).map(|seed| {
        let shared = of_seed(seed) - of_all;
        let each = arms
            .iter()
            .zip(&of_arms)
            .map(|(arm, own)| arm[seed] - own - shared);
        each.map(|residual| residual * residual).sum::<f64>()
    });
    squares.sum()
}

/// Whether one variance is significantly larger than another (F test).
fn is_far_more(variance: f64, freedom: f64, other: f64, other_freedom: f64) -> bool {
    if variance <= 0.0 {
        return false;
    }
    let ratio = variance / other;
    if !ratio.is_finite() {
        return true;
    }
    let test = FisherSnedecor::new(freedom, other_freedom).expect("positive degrees of freedom");
    test.sf(ratio) < LEFT_OUT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_with_equal_variance_are_pooled() {
        // Residuals by hand: +-1, +-1 and 0 around means that differ by arm and seed.
        let arms = [vec![1.0, 3.0], vec![12.0, 12.0], vec![21.0, 22.0]];
        let pool = Pool::of(&arms).expect("three arms");
        // Under the second seed all rise by 1; residuals: -0.5 0.5, 0.5 -0.5, 0 0.
        assert!((pool.variance - 2.0 * 1.0 / 2.0).abs() < 1e-12, "{pool:?}");
        assert_eq!(pool.freedom, 2.0);
        let alike = Spread::of(&[0.0, 0.1], Some(&pool)).expect("two seeds");
        assert_eq!((alike.variance, alike.freedom), (0.5, 2.0));
        assert_eq!(Pool::of(&arms[..2]), None);
    }

    #[test]
    fn a_difference_with_more_variance_than_the_pool_uses_its_own() {
        let pool = Pool {
            variance: 1.0,
            freedom: 8.0,
        };
        let wild = [0.0, 20.0, -20.0];
        let spread = Spread::of(&wild, Some(&pool)).expect("three seeds");
        let own = Spread::of(&wild, None).expect("three seeds");
        assert!((spread.variance / own.variance - 1.0).abs() < 1e-12);
        assert!(own.freedom == 2.0 && (2.0..2.1).contains(&spread.freedom));
    }

    #[test]
    fn an_arm_with_outlying_variance_is_left_out_of_the_pool() {
        let arm = |scale: f64, shift: f64| -> Vec<f64> {
            let each = (0..3).map(|seed| scale * (seed as f64 * 2.3 + shift).sin());
            each.collect()
        };
        let calm = [arm(0.1, 0.0), arm(0.1, 1.0), arm(0.1, 2.5), arm(0.1, 4.0)];
        let alone = Pool::of(&calm).expect("arms");
        let with_wild = Pool::of(&[&calm[..], &[arm(30.0, 0.3)]].concat()).expect("arms");
        assert_eq!(alone, with_wild);
        // Arms with variance 0 leave out an arm with variance.
        let still = [vec![1.0; 3], vec![2.0; 3], arm(1.0, 0.0)];
        assert_eq!(Pool::of(&still).map(|pool| pool.variance), Some(0.0));
    }
}
