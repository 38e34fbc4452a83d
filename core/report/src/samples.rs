//! The kept answers of two evaluations -> each question with its answers before and after training.

use espalier_engine::sample_answer::SampleAnswer;
use serde::Serialize;

use super::run_metrics::RunMetrics;

/// A held-out question with its answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// The prompt; of a long one the end.
    pub question: String,
    /// The answer of the row.
    pub expected: String,
    /// The answer at the first evaluation.
    pub before: GivenAnswer,
    /// The answer at the evaluation that is judged, if it is another.
    pub after: Option<GivenAnswer>,
}

/// An answer of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GivenAnswer {
    /// Its text; of a long one the beginning.
    pub text: String,
    /// Whether it is that of the row.
    pub right: bool,
}

impl GivenAnswer {
    fn of(sample: &SampleAnswer) -> Self {
        GivenAnswer {
            text: sample.answer.clone(),
            right: sample.right,
        }
    }
}

/// The questions of the first evaluation, with the answers after `after` steps. Runs that kept no
/// answers have none.
pub fn samples(metrics: &RunMetrics, after: Option<u64>) -> Vec<Sample> {
    let Some((first, before)) = metrics.samples.first() else {
        return Vec::new();
    };
    let after = metrics
        .samples
        .iter()
        .find(|(step, _)| step > first && Some(*step) == after);
    let after = after.map_or(&[][..], |(_, after)| after);
    let sample = |(index, one): (usize, &SampleAnswer)| {
        let same = |other: &&SampleAnswer| {
            (&other.question, &other.expected) == (&one.question, &one.expected)
        };
        Sample {
            question: one.question.clone(),
            expected: one.expected.clone(),
            before: GivenAnswer::of(one),
            after: after.get(index).filter(same).map(GivenAnswer::of),
        }
    };
    before.iter().enumerate().map(sample).collect()
}
