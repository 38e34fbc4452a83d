//! Differences by seed and document -> draws of what their mean could have been, and intervals of these.
//!
//! A handful of seeds cannot be drawn with replacement: the spread of three values, drawn from themselves, is too small by
//! a third and knows nothing of how uncertain it is. So the seeds' part of the variance enters as Student's t with one
//! degree of freedom fewer than there are seeds, which is exact where the seeds' means are normal. Documents are many and of
//! any shape: they are drawn with replacement, paired, all seeds of a document together, and the deviation of their mean
//! is scaled to the documents' own part of the variance (see [`Variance`]), widened as Student's t is wider than the
//! normal distribution. The sum of both is a draw. `simulation.rs` holds how often the intervals cover the truth.
//!
//! # Source
//! The paired bootstrap: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 8; the widening:
//! Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69, 2015, section 3.2 (expanded
//! percentile interval). The sum of two such parts is Fisher's solution of Behrens' problem.

use espalier_interface::random::{Purpose, key, philox};
use rayon::prelude::*;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::paired::Paired;
use super::variance::Variance;

/// Random numbers for drawing documents; counter `(pick block, draw, 0, 0)`.
const RESAMPLING: Purpose = Purpose(6);
/// Draws of an interval.
pub const DRAWS: u32 = 10_000;
/// The share of intervals that should hold the truth.
pub const CONFIDENCE: f64 = 0.95;
/// Fewer seeds than this give no verdict.
pub const FEWEST_SEEDS: usize = 3;

/// From the lower to the upper end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval(pub [f64; 2]);

impl Interval {
    /// Whether `value` lies within.
    pub fn contains(self, value: f64) -> bool {
        let [low, high] = self.0;
        low <= value && value <= high
    }

    /// From end to end.
    pub fn width(self) -> f64 {
        self.0[1] - self.0[0]
    }
}

/// What the mean difference a token could have been, in rising order.
#[derive(Clone, Debug, PartialEq)]
pub struct Draws(Vec<f64>);

impl Draws {
    /// `count` draws. Fewer than [`FEWEST_SEEDS`] seeds add nothing: what is drawn are documents alone.
    pub fn of(paired: &Paired, count: u32) -> Self {
        let (variance, estimate) = (Variance::of(paired), paired.estimate());
        let seeds = paired.differences.len();
        let deviations = document_deviations(paired, &variance, count);
        let spread = match variance.seeds {
            Some(variance) if seeds >= FEWEST_SEEDS => variance.sqrt(),
            _ => 0.0,
        };
        let student = match spread > 0.0 {
            true => student_quantiles(seeds - 1, count),
            false => vec![0.0; count as usize],
        };
        let drawn = deviations.iter().zip(student);
        let mut drawn: Vec<f64> = drawn
            .map(|(deviation, t)| estimate + deviation + t * spread)
            .collect();
        drawn.sort_unstable_by(f64::total_cmp);
        Draws(drawn)
    }

    /// The interval that holds `share` of the draws, as many left out below as above.
    pub fn interval(&self, share: f64) -> Interval {
        let tail = (1.0 - share) / 2.0;
        Interval([tail, 1.0 - tail].map(|at| self.quantile(at)))
    }

    fn quantile(&self, share: f64) -> f64 {
        let at = share * (self.0.len() - 1) as f64;
        let (below, rest) = (at.floor() as usize, at.fract());
        let above = (below + 1).min(self.0.len() - 1);
        self.0[below] + rest * (self.0[above] - self.0[below])
    }
}

/// How far the mean difference a token moves when documents are drawn anew, without what is told by the seeds, `[count]`.
fn document_deviations(paired: &Paired, variance: &Variance, count: u32) -> Vec<f64> {
    let documents = paired.trained.len();
    let total = variance.documents_total;
    let Some(own) = variance.documents.filter(|own| *own > 0.0 && total > 0.0) else {
        return vec![0.0; count as usize];
    };
    // The variance of a draw is total * (documents - 1) / documents.
    let n = documents as f64;
    let scale = (own / total * n / (n - 1.0)).sqrt() * widening(documents - 1);
    let (by_document, estimate) = (paired.by_document(), paired.estimate());
    let key = key(0, RESAMPLING, 0);
    let deviation = |draw: u32| {
        let (mut sum, mut tokens) = (0.0, 0.0);
        for block in 0..documents.div_ceil(4) {
            let words = philox(key, [block as u32, draw, 0, 0]);
            for word in &words[..(documents - 4 * block).min(4)] {
                let picked = ((u64::from(*word) * documents as u64) >> 32) as usize;
                sum += by_document[picked];
                tokens += paired.trained[picked];
            }
        }
        (sum / tokens - estimate) * scale
    };
    (0..count).into_par_iter().map(deviation).collect()
}

/// How much wider Student's t of so many degrees of freedom is than the normal distribution, at
/// the ends of the interval.
fn widening(freedom: usize) -> f64 {
    let at = (1.0 + CONFIDENCE) / 2.0;
    student_quantile(freedom, at) / Normal::standard().inverse_cdf(at)
}

/// The value below which Student's t of so many degrees of freedom lies with probability `at`.
pub fn student_quantile(freedom: usize, at: f64) -> f64 {
    student(freedom).inverse_cdf(at)
}

/// Student's t at the middles of `count` equal parts of its probability: in place of as many random
/// numbers, whose noise it spares.
fn student_quantiles(freedom: usize, count: u32) -> Vec<f64> {
    let student = student(freedom);
    let middle = |part: u32| (f64::from(part) + 0.5) / f64::from(count);
    let lower = (0..count.div_ceil(2)).map(|part| student.inverse_cdf(middle(part)));
    let lower: Vec<f64> = lower.collect();
    let upper = lower.iter().rev().skip(count as usize % 2).map(|t| -t);
    lower.iter().copied().chain(upper).collect()
}

fn student(freedom: usize) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom as f64).expect("a positive number of degrees of freedom")
}
