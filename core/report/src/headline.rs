//! A run's metrics and plan -> its headline numbers.

use espalier_interface::bytes::Bytes;
use espalier_system::number::{change, count, duration, percent, significant};
use serde::Serialize;

use super::facts::{Ends, Facts};
use super::peak::SharesOfPeak;
use super::record::Record;
use super::run_metrics::{EvalPoint, RunMetrics};

/// The numbers of a run; unknown ones are `None`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Headline {
    /// Completed steps.
    pub steps: u64,
    /// Steps of the whole run.
    pub planned_steps: Option<u64>,
    /// Training loss at the beginning and at the end, as in the reading.
    pub training_loss: Option<[f64; 2]>,
    /// The first evaluation.
    pub eval_before: Option<EvalPoint>,
    /// The last evaluation, if it is another.
    pub eval_after: Option<EvalPoint>,
    /// Trained tokens.
    pub trained_tokens: u64,
    /// Tokens, trained or not.
    pub tokens: u64,
    /// The time of all steps together, in seconds.
    pub secs: f64,
    /// `tokens / secs`.
    pub tokens_per_sec: Option<f64>,
    /// Median share of the peak: the highest measured matrix-product rate of the devices.
    pub speed_of_light: Option<f64>,
    /// Trained parameters and all parameters.
    pub params: [u64; 2],
}

impl Headline {
    /// The numbers of `metrics` and `record`, taken from `facts` where it has them.
    pub fn new(metrics: &RunMetrics, record: &Record, facts: &Facts, peak: &SharesOfPeak) -> Self {
        let (tokens, secs) = (metrics.tokens(), metrics.secs());
        Headline {
            steps: metrics.steps.last().map_or(0, |last| last.step),
            planned_steps: record.data.total_steps,
            training_loss: facts
                .training
                .map(|training| [training.before, training.after]),
            eval_before: metrics.evals.first().copied(),
            eval_after: metrics.evals.get(1..).and_then(|evals| {
                let kept = |eval: &&EvalPoint| Some(eval.step) == facts.kept;
                evals.iter().find(kept).or(evals.last()).copied()
            }),
            trained_tokens: metrics.trained_tokens(),
            tokens,
            secs,
            tokens_per_sec: (secs > 0.0).then_some(tokens as f64 / secs),
            speed_of_light: peak.median,
            params: [record.model.num_trained_params, record.model.num_params],
        }
    }

    /// The numbers as the page shows them; `peak_bytes` is measured, `planned_bytes` predicted.
    pub fn tiles(&self, facts: &Facts, [peak_bytes, planned_bytes]: [u64; 2]) -> Vec<Tile> {
        let loss = facts.loss.map(|ends| fallen("Held-out loss", ends));
        let perplexity = facts.perplexity.map(|Ends { before, after }| {
            let text = |value| significant(value, 3);
            Tile::pair("Perplexity", text(before), after.map(text), String::new())
        });
        let accuracy = facts
            .token_accuracy
            .map(|ends| risen("Token accuracy", ends));
        let exact = facts.exact_match.map(|ends| risen("Exact match", ends));
        let held_out = [exact, loss, perplexity, accuracy].into_iter().flatten();
        held_out
            .chain(self.training_tiles())
            .chain((peak_bytes > 0).then(|| {
                let planned = format!("planned {}", Bytes(planned_bytes));
                Tile::new("Peak memory", Bytes(peak_bytes).to_string(), planned)
            }))
            .collect()
    }

    fn training_tiles(&self) -> Vec<Tile> {
        let training = self.training_loss.map(|[before, last]| {
            let after = (self.steps > 1).then_some(last);
            fallen("Training loss", Ends { before, after })
        });
        let steps = match self.planned_steps {
            Some(planned) if planned != self.steps => format!("of {planned} planned"),
            _ => "all that were planned".to_owned(),
        };
        let trained = format!("{} of them trained", count(self.trained_tokens));
        let speed = self.tokens_per_sec.map(|rate| {
            let share = self.speed_of_light.map(percent);
            let share = share.map(|share| format!("{share} of peak"));
            Tile::new(
                "Throughput",
                format!("{} tokens/s", count(rate as u64)),
                share.unwrap_or_default(),
            )
        });
        let time = Tile::new(
            "Time in steps",
            duration(self.secs),
            "without loading and evaluation".to_owned(),
        );
        let [trained_params, params] = self.params;
        let share = percent(trained_params as f64 / params.max(1) as f64);
        let params = Tile::new(
            "Parameters trained",
            count(trained_params),
            format!("{share} of {}", count(params)),
        );
        training
            .into_iter()
            .chain([
                Tile::new("Steps", self.steps.to_string(), steps),
                Tile::new("Tokens", count(self.tokens), trained),
                time,
            ])
            .chain(speed)
            .chain([params])
            .collect()
    }
}

/// A number with its name and its small print.
#[derive(Clone, Debug, Serialize)]
pub struct Tile {
    name: &'static str,
    value: String,
    /// The value afterwards.
    after: Option<String>,
    small: String,
}

impl Tile {
    fn new(name: &'static str, value: String, small: String) -> Self {
        Tile::pair(name, value, None, small)
    }

    fn pair(name: &'static str, value: String, after: Option<String>, small: String) -> Self {
        Tile {
            name,
            value,
            after,
            small,
        }
    }
}

/// A loss before and after, with its relative change.
fn fallen(name: &'static str, Ends { before, after }: Ends) -> Tile {
    let small = after.map(|after| change(before, after)).unwrap_or_default();
    let text = |value| significant(value, 4);
    Tile::pair(name, text(before), after.map(text), small)
}

/// A share before and after.
fn risen(name: &'static str, Ends { before, after }: Ends) -> Tile {
    let small = after.map(|after| {
        let points = format!("{:+.1} points", (after - before) * 100.0);
        points.replace('-', "\u{2212}")
    });
    Tile::pair(
        name,
        percent(before),
        after.map(percent),
        small.unwrap_or_default(),
    )
}
