//! An arm's held-out losses under several seeds -> the noise floor of unpaired comparisons.

use serde::Serialize;

use super::bootstrap::CONFIDENCE;
use super::quantiles::student_quantile;
use super::variance::sample_variance;

/// The variation of runs that differ only in their seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Noise {
    /// Standard deviation of a run's held-out loss over seeds, nats per token.
    pub deviation: f64,
    /// Degrees of freedom of that deviation.
    pub freedom: usize,
    /// Two means over as many seeds differ by less than this in 95 % of cases if only the seeds
    /// differ. They are not paired: this is the effect of another choice of seeds.
    pub range: f64,
}

impl Noise {
    /// The pooled noise of arms whose runs had these losses, one list per arm; the range is of
    /// means of `seeds` losses. Arms share their seeds, so several arms have no more information
    /// about seeds than one. The degrees of freedom are those of the arm with most runs. `None`
    /// where no arm has two runs.
    pub fn of(arms: &[Vec<f64>], seeds: usize) -> Option<Self> {
        let several = arms.iter().filter_map(|losses| {
            let variance = sample_variance(losses).filter(|variance| variance.is_finite())?;
            Some((variance, losses.len() - 1))
        });
        let (mut squares, mut runs, mut freedom) = (0.0, 0, 0);
        for (variance, own) in several {
            squares += variance * own as f64;
            runs += own;
            freedom = own.max(freedom);
        }
        if runs == 0 || seeds == 0 {
            return None;
        }
        let deviation = (squares / runs as f64).sqrt();
        let range = deviation * (2.0 / seeds as f64).sqrt();
        Some(Noise {
            deviation,
            freedom,
            range: range * student_quantile(freedom as f64, (1.0 + CONFIDENCE) / 2.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_students_t_times_the_deviation_of_a_difference_of_means() {
        let noise = Noise::of(&[vec![1.0, 2.0, 3.0]], 3).expect("three runs");
        assert_eq!((noise.deviation, noise.freedom), (1.0, 2));
        // Student's t with 2 degrees of freedom: 4.30265 (any table).
        assert!((noise.range - 4.302_65 * (2.0f64 / 3.0).sqrt()).abs() < 1e-4);
    }

    #[test]
    fn more_arms_of_the_same_seeds_add_no_freedom() {
        let arms = [
            vec![1.0, 3.0],
            vec![5.0],
            vec![9.0, 9.0],
            vec![f64::NAN, 1.0],
        ];
        let noise = Noise::of(&arms, 2).expect("two arms of two runs");
        assert_eq!((noise.deviation, noise.freedom), (1.0, 1));
        assert_eq!(Noise::of(&[vec![1.0], vec![2.0]], 3), None);
    }
}
