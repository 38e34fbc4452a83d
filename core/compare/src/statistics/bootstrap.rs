//! Differences by seed and document -> bootstrap draws of their mean, and confidence intervals.
//!
//! A few seeds cannot be resampled: the variance of three resampled values is too small by a third,
//! and its uncertainty is ignored. The seeds' part of the variance therefore enters as Student's t.
//! Its degrees of freedom are the number of seeds less one, or more where several arms are pooled
//! (see [`Pool`]). This is exact for normal means by seed. Documents are many, with any
//! distribution. They are resampled with replacement, paired, all seeds of a document together. The
//! deviation of their mean is scaled to the documents' own part of the variance (see [`Variance`]).
//! It is then widened by the ratio of Student's t to the normal distribution. The sum of both parts
//! is a draw. `simulation.rs` measures the coverage of the intervals.
//!
//! # Source
//! The paired bootstrap: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 8;
//! the widening: Hesterberg, "What Teachers Should Know About the Bootstrap", The American
//! Statistician 69, 2015, section 3.2 (expanded percentile interval). The sum of two such parts is
//! Fisher's solution of Behrens' problem.

use espalier_interface::random::{Purpose, key, philox};
use rayon::prelude::*;
use serde::Serialize;

use super::paired::Paired;
use super::pool::{Pool, Spread, satterthwaite};
use super::quantiles::{student_quantiles, widenings};
use super::variance::Variance;

/// Random numbers for drawing documents; counter `(pick block, draw, 0, 0)`.
const RESAMPLING: Purpose = Purpose(6);
/// Draws of an interval.
pub const DRAWS: u32 = 10_000;
/// The coverage of the intervals.
pub const CONFIDENCE: f64 = 0.95;
/// Fewer seeds than this give no verdict.
pub const FEWEST_SEEDS: usize = 3;

/// An interval: the lower and the upper end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval(pub [f64; 2]);

impl Interval {
    /// Whether `value` is in the interval.
    pub fn contains(self, value: f64) -> bool {
        let [low, high] = self.0;
        low <= value && value <= high
    }

    /// Upper end less lower end.
    pub fn width(self) -> f64 {
        self.0[1] - self.0[0]
    }
}

/// Bootstrap draws of the mean difference per token.
#[derive(Clone, Debug, PartialEq)]
pub struct Draws {
    /// In ascending order.
    drawn: Vec<f64>,
    estimate: f64,
    parts: Parts,
}

/// The parts of the variance of a mean difference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    /// The variance over seeds; `None` without an effect of seeds or with too few of them.
    pub seeds: Option<Spread>,
    /// The variance over documents.
    pub documents: f64,
    /// Documents less one.
    pub documents_freedom: f64,
}

impl Parts {
    /// The degrees of freedom of the whole variance.
    pub fn freedom(&self) -> f64 {
        let seeds = self.seeds.unwrap_or_default();
        let parts = [
            (seeds.variance, seeds.freedom),
            (self.documents, self.documents_freedom),
        ];
        let fallback = seeds.freedom.max(self.documents_freedom).max(1.0);
        satterthwaite(&parts, fallback)
    }
}

impl Draws {
    /// `count` draws, with the variance over seeds of `pool` where given. Fewer than
    /// [`FEWEST_SEEDS`] seeds add nothing: only documents are resampled.
    pub fn of(paired: &Paired, pool: Option<&Pool>, count: u32) -> Self {
        let (variance, estimate) = (Variance::of(paired), paired.estimate());
        let deviations = document_deviations(paired, &variance, count);
        let enough = paired.differences.len() >= FEWEST_SEEDS;
        let seeds = Spread::of(&paired.by_seed(), pool).filter(|_| enough);
        let spread = seeds.filter(|spread| spread.variance > 0.0);
        // Quantiles replace as many random numbers, without sampling noise.
        let student = match spread {
            Some(spread) => student_quantiles(spread.freedom, count),
            None => vec![0.0; count as usize].into(),
        };
        let deviation = spread.map_or(0.0, |spread| spread.variance.sqrt());
        let drawn = deviations.iter().zip(student.iter());
        let mut drawn: Vec<f64> = drawn
            .map(|(of_documents, t)| estimate + of_documents + t * deviation)
            .collect();
        drawn.sort_unstable_by(f64::total_cmp);
        let parts = Parts {
            seeds,
            documents: variance.documents.unwrap_or_default(),
            documents_freedom: paired.trained.len().saturating_sub(1) as f64,
        };
        Draws {
            drawn,
            estimate,
            parts,
        }
    }

    /// The interval of the central `share` of the draws, extended to contain the estimate.
    pub fn interval(&self, share: f64) -> Interval {
        let tail = (1.0 - share) / 2.0;
        let [low, high] = [tail, 1.0 - tail].map(|at| self.quantile(at));
        Interval([low.min(self.estimate), high.max(self.estimate)])
    }

    /// The parts of the variance.
    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// The degrees of freedom of the variance.
    pub fn freedom(&self) -> f64 {
        self.parts.freedom()
    }

    /// Each draw is the quantile at the middle of its equal share of the probability.
    fn quantile(&self, share: f64) -> f64 {
        let last = self.drawn.len() - 1;
        let at = (share * self.drawn.len() as f64 - 0.5).clamp(0.0, last as f64);
        let (below, rest) = (at.floor() as usize, at.fract());
        let above = (below + 1).min(last);
        self.drawn[below] + rest * (self.drawn[above] - self.drawn[below])
    }
}

/// Deviations of the mean difference per token over resampled documents, without the part of the
/// seeds, `[count]`.
fn document_deviations(paired: &Paired, variance: &Variance, count: u32) -> Vec<f64> {
    let documents = paired.trained.len();
    let total = variance.documents_total;
    let Some(own) = variance.documents.filter(|own| *own > 0.0 && total > 0.0) else {
        return vec![0.0; count as usize];
    };
    // The variance of a draw is total * (documents - 1) / documents.
    let n = documents as f64;
    let scale = (own / total * n / (n - 1.0)).sqrt();
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
    let drawn: Vec<f64> = (0..count).into_par_iter().map(deviation).collect();
    widened(drawn, (documents - 1) as f64)
}

/// Scales each of `drawn` by the ratio of Student's t with `freedom` degrees of freedom to the
/// normal distribution, at the same quantile.
fn widened(mut drawn: Vec<f64>, freedom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..drawn.len()).collect();
    order.sort_unstable_by(|a, b| drawn[*a].total_cmp(&drawn[*b]));
    let ratios = widenings(freedom, drawn.len() as u32);
    for (at, ratio) in order.into_iter().zip(ratios.iter()) {
        drawn[at] *= ratio;
    }
    drawn
}
