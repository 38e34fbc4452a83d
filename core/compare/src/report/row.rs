//! The findings of an arm -> its line in the table.

use espalier_report::Memory;
use espalier_report::run_metrics::RunMetrics;
use espalier_report::series::mean;
use serde::Serialize;

use super::facts::{Facts, Standing};
use super::findings::{Findings, RunFindings};
use super::quality::Quality;
use crate::record::{Base, Failure, WeightError};
use crate::statistics::{Difference, Noise};

/// The numbers of an arm; unknown ones are `None`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ArmRow {
    /// Its name.
    pub name: String,
    /// Whether it is the dense baseline.
    #[serde(rename = "is_yardstick")]
    pub is_dense_baseline: bool,
    /// Bits per packed weight, including scales; where none is packed, per frozen weight.
    pub bits_per_weight: Option<f64>,
    /// Bits per frozen weight, including dense ones.
    pub bits_per_frozen_weight: Option<f64>,
    /// Seconds of encoding.
    pub encode_secs: Option<f64>,
    /// Squared error of all encoded weights by their squared norm.
    pub weight_error: Option<f64>,
    /// Mean divergence of predictions from the dense base's, in nats.
    pub divergence: Option<f64>,
    /// Share of tokens for which arm and dense base rank the same prediction first.
    pub same_top: Option<f64>,
    /// Held-out documents before training.
    pub before: Option<Quality>,
    /// The same after it, mean over seeds.
    pub after: Option<Quality>,
    /// The one by which arms are compared.
    #[serde(skip)]
    pub quality: Option<Quality>,
    /// The noise of its held-out loss over seeds.
    pub noise: Option<Noise>,
    /// Tokens per second of its steps.
    pub tokens_per_sec: Option<f64>,
    /// Mean seconds of its steps.
    pub secs_per_step: Option<f64>,
    /// Planned memory, and the measured peak of all runs.
    pub memory: Option<Memory>,
    /// The conclusion about it.
    pub standing: Standing,
    /// Its excess over the leader.
    pub above: Option<Difference>,
    /// Seeds of the verdict; for an arm that is not ranked, the seeds of its runs.
    pub seeds: Vec<u64>,
    /// Its failures.
    pub failures: Vec<Failure>,
}

impl ArmRow {
    /// The line of the arm at `place`.
    pub fn new(findings: &Findings, facts: &Facts, place: usize) -> Self {
        let (found, step) = (&findings.arms[place], findings.step);
        let base = found.base.as_ref();
        let mut held_out = step.map(|step| found.held_out(step)).unwrap_or_default();
        if facts.takes_part(place) {
            held_out.retain(|(seed, _)| facts.seeds.contains(seed));
        }
        let after: Vec<Quality> = held_out
            .iter()
            .filter_map(|(_, run)| Quality::of(run.total()))
            .collect();
        let before = found.before().and_then(|run| Quality::of(run.total()));
        let losses: Vec<f64> = after.iter().map(|quality| quality.loss).collect();
        let metrics = || found.runs.iter().map(|run| &run.metrics);
        let tokens: u64 = metrics().map(RunMetrics::tokens).sum();
        let timed = metrics().flat_map(|metrics| &metrics.steps);
        let steps = timed.filter(|step| step.step_secs.is_finite()).count();
        let secs: f64 = metrics().map(RunMetrics::secs).sum();
        ArmRow {
            name: found.arm.name.clone(),
            is_dense_baseline: findings.dense_baseline() == Some(place),
            bits_per_weight: base.and_then(bits_per_weight),
            bits_per_frozen_weight: base
                .and_then(|base| bits(base.frozen_bytes, base.frozen_weights)),
            encode_secs: base
                .filter(|base| base.encoded > 0)
                .map(|base| base.encode_secs),
            weight_error: base.and_then(|base| relative_error(&base.weights)),
            divergence: base.and_then(|base| Some(base.divergence.as_ref()?.mean)),
            same_top: base.and_then(|base| Some(base.divergence.as_ref()?.same_top)),
            quality: if findings.comparison.eval_only {
                before
            } else {
                mean_quality(&after)
            },
            before,
            after: mean_quality(&after),
            noise: Noise::of(&[losses], after.len()),
            tokens_per_sec: (secs > 0.0).then_some(tokens as f64 / secs),
            secs_per_step: (secs > 0.0).then_some(secs / steps as f64),
            memory: memory(&found.runs),
            standing: facts.standings[place],
            above: facts.above(place).cloned(),
            seeds: held_out.iter().map(|(seed, _)| *seed).collect(),
            failures: found.arm.failures.clone(),
        }
    }
}

/// Squared error of several weights by their squared norm; `None` without weights.
pub fn relative_error<'a>(weights: impl IntoIterator<Item = &'a WeightError>) -> Option<f64> {
    let (error, norm) = weights
        .into_iter()
        .fold((0.0, 0.0), |(error, norm), weight| {
            (error + weight.squared_error, norm + weight.squared_norm)
        });
    let relative: f64 = error / norm;
    relative.is_finite().then_some(relative)
}

fn bits(bytes: u64, weights: u64) -> Option<f64> {
    (weights > 0).then(|| bytes as f64 * 8.0 / weights as f64)
}

fn bits_per_weight(base: &Base) -> Option<f64> {
    bits(base.packed_bytes, base.packed_weights)
        .or_else(|| bits(base.frozen_bytes, base.frozen_weights))
}

fn mean_quality(runs: &[Quality]) -> Option<Quality> {
    let loss = mean(runs.iter().map(|run| run.loss));
    loss.is_finite().then(|| Quality {
        loss,
        perplexity: loss.exp(),
        token_accuracy: mean(runs.iter().map(|run| run.token_accuracy)),
    })
}

/// The plan of the first run, which is equal for all, and the highest measured peak.
fn memory(runs: &[RunFindings]) -> Option<Memory> {
    let record = &runs.first()?.record;
    let peaks = runs.iter().map(|run| run.metrics.peak_bytes());
    let peak = peaks.fold([0, 0], |most, peak| {
        [most[0].max(peak[0]), most[1].max(peak[1])]
    });
    Some(Memory::new(record, peak))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_of_packed_weights_or_else_of_frozen_ones() {
        let mut base = Base {
            frozen_weights: 100,
            frozen_bytes: 200,
            ..Base::default()
        };
        assert_eq!(bits_per_weight(&base), Some(16.0));
        (base.packed_weights, base.packed_bytes) = (80, 41);
        assert_eq!(bits_per_weight(&base), Some(4.1));
        assert_eq!(bits_per_weight(&Base::default()), None);
    }

    #[test]
    fn the_error_of_several_weights_is_weighed_by_their_norms() {
        let weight = |squared_error, squared_norm| WeightError {
            squared_error,
            squared_norm,
            ..WeightError::default()
        };
        assert_eq!(
            relative_error(&[weight(1.0, 10.0), weight(0.0, 90.0)]),
            Some(0.01)
        );
        assert_eq!(relative_error(&[]), None);
    }
}
