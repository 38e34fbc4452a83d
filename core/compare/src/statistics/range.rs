//! A number of arms -> the significance level of a comparison with the best of them.
//!
//! The leader is selected by the same numbers that are then tested. Among K equal arms, the
//! distance of the least and the greatest mean is distributed as the range of K values. The level
//! of one comparison is therefore the probability of Student's t beyond the 95 % quantile of the
//! studentized range. For two arms it is 5 %. It is less strict than 5 % shared among all pairs
//! (Bonferroni), and controls the error of all pairs together.
//!
//! # Source
//! Tukey's studentized range for pairs of means; with unequal variances: Games and Howell, Journal
//! of Educational Statistics 1, 1976. The integral: Copenhaver and Holland, Journal of Statistical
//! Computation and Simulation 30, 1988.

use std::collections::BTreeMap;
use std::f64::consts::SQRT_2;
use std::sync::Mutex;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::bootstrap::CONFIDENCE;

/// Step and extent of the quadrature over normal values. The integrand is smooth and vanishes at
/// both ends, so the trapezoidal sum is exact to more digits than are used.
const STEP: f64 = 0.25;
const REACH: f64 = 7.5;
/// More degrees of freedom than this make no visible difference.
const MOST_FREEDOM: f64 = 240.0;

/// The significance level of one comparison whose variance has `freedom` degrees of freedom. At
/// this level, some pair of `arms` equal arms is significant in 5 % of cases (Games and Howell).
pub fn risk(arms: usize, freedom: f64) -> f64 {
    static KNOWN: Mutex<BTreeMap<(usize, u32), f64>> = Mutex::new(BTreeMap::new());
    if arms <= 2 {
        return 1.0 - CONFIDENCE;
    }
    let tenths = (10.0 * freedom.clamp(1.0, MOST_FREEDOM)).floor();
    let freedom = tenths / 10.0;
    let key = (arms, tenths as u32);
    let known = || {
        KNOWN
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    };
    if let Some(risk) = known().get(&key) {
        return *risk;
    }
    let student = StudentsT::new(0.0, 1.0, freedom).expect("positive degrees of freedom");
    let risk = 2.0 * student.cdf(-quantile(arms, freedom) / SQRT_2);
    known().insert(key, risk);
    risk
}

/// The 95 % quantile of the studentized range of `arms` values.
fn quantile(arms: usize, freedom: f64) -> f64 {
    let scales = scales(freedom);
    let normals = normals();
    let below = |q: f64| -> f64 {
        let each = scales
            .iter()
            .map(|(scale, weight)| weight * range_below(&normals, arms, q * scale));
        each.sum()
    };
    let (mut low, mut high) = (0.0, 2.0);
    while below(high) < CONFIDENCE {
        (low, high) = (high, 2.0 * high);
    }
    // To 1e-6 of the search interval.
    for _ in 0..20 {
        let middle = f64::midpoint(low, high);
        if below(middle) < CONFIDENCE {
            low = middle
        } else {
            high = middle
        }
    }
    f64::midpoint(low, high)
}

/// Quadrature points of the normal distribution: value, density times step, cumulative probability.
fn normals() -> Vec<(f64, f64, f64)> {
    let normal = Normal::standard();
    let count = (2.0 * REACH / STEP) as i32;
    let at = |index: i32| {
        let z = f64::from(index) * STEP - REACH;
        let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
        (z, density * STEP, normal.cdf(z))
    };
    (0..=count).map(at).collect()
}

/// The probability that the range of `arms` normal values is below `width`: the greatest is `z`,
/// all others are at most `width` below.
fn range_below(normals: &[(f64, f64, f64)], arms: usize, width: f64) -> f64 {
    let normal = Normal::standard();
    let others = arms as i32 - 1;
    let each = normals.iter().map(|(z, density, below)| {
        let within: f64 = below - normal.cdf(z - width);
        density * within.max(0.0).powi(others)
    });
    arms as f64 * each.sum::<f64>()
}

/// Estimated standard deviations with `freedom` degrees of freedom where the true one is 1, and
/// their probabilities, equally spaced in their logarithm.
fn scales(freedom: f64) -> Vec<(f64, f64)> {
    let step = 0.3 / (2.0 * freedom).sqrt();
    // Relative to the density at 1, which is the greatest.
    let density = |x: f64| (freedom * (x + 0.5 - 0.5 * (2.0 * x).exp())).exp();
    let side = |direction: f64| {
        let points = (0..).map(move |index| direction * f64::from(index) * step);
        points
            .map(|x| (x, density(x)))
            .take_while(|(_, density)| *density > 1e-9)
    };
    let points: Vec<(f64, f64)> = side(-1.0).chain(side(1.0).skip(1)).collect();
    let whole: f64 = points.iter().map(|(_, density)| density).sum();
    points
        .into_iter()
        .map(|(x, density)| (x.exp(), density / whole))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_equal_published_tables() {
        // Any table of the studentized range at 5 %.
        for (arms, freedom, expected) in [
            (2, 2.0, 6.085),
            (3, 4.0, 5.040),
            (5, 8.0, 4.886),
            (5, 2.0, 10.88),
            (10, 20.0, 5.008),
            (20, 120.0, 5.126),
        ] {
            let found = quantile(arms, freedom);
            assert!(
                (found / expected - 1.0).abs() < 2e-3,
                "{arms} {freedom}: {found} {expected}"
            );
        }
    }

    #[test]
    fn the_level_falls_with_the_number_of_arms_but_stays_above_bonferroni() {
        assert!((risk(2, 3.0) - 0.05).abs() < 1e-12);
        for freedom in [2.0, 8.0, 60.0] {
            let risks: Vec<f64> = (2..8).map(|arms| risk(arms, freedom)).collect();
            assert!(risks.is_sorted_by(|a, b| a > b), "{risks:?}");
            for (arms, risk) in (2..8).zip(&risks) {
                let pairs = (arms * (arms - 1) / 2) as f64;
                assert!(*risk >= 0.05 / pairs - 1e-9, "{arms}: {risk}");
            }
        }
    }
}
