//! A run's metrics -> the charts of its report.

use espalier_engine::observer::StepMetrics;

use super::chart::{Chart, Style, Upward};
use super::peak::SharesOfPeak;
use super::run_metrics::{EvalPoint, RunMetrics};
use super::series::Point;

/// The charts that have something to show; `planned_bytes` is the planned peak of memory, where it
/// is known.
pub fn charts(metrics: &RunMetrics, peak: &SharesOfPeak, planned_bytes: Option<u64>) -> Vec<Chart> {
    let steps = |of: &dyn Fn(&StepMetrics) -> f64| -> Vec<Point> {
        let points = metrics
            .steps
            .iter()
            .map(|step| (step.step as f64, of(step)));
        points.collect()
    };
    let evals = |of: fn(&EvalPoint) -> Option<f64>| -> Vec<Point> {
        let value = |eval: &EvalPoint| Some((eval.step as f64, of(eval)?));
        metrics.evals.iter().filter_map(value).collect()
    };
    let mut loss = Chart::new("Loss", "")
        .with_noisy("training, ", &steps(&|step| step.loss))
        .with("held out", Style::Points, &evals(|eval| eval.loss));
    (loss.upward, loss.wide) = (Upward::Free, true);
    let answers = Chart::new("Held-out accuracy", "%")
        .with(
            "token accuracy",
            Style::Points,
            &evals(|eval| eval.token_accuracy.map(|share| share * 100.0)),
        )
        .with(
            "exact match",
            Style::Others,
            &evals(|eval| eval.exact_match.map(|share| share * 100.0)),
        );
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let held = |step: &StepMetrics| match step.peak_device_bytes {
        0 => mebibytes(step.peak_host_bytes),
        device => mebibytes(device),
    };
    let planned = planned_bytes.map(|bytes| steps(&|_| mebibytes(bytes)));
    let planned = planned.unwrap_or_default();
    let shares: Vec<Point> = peak
        .by_step
        .iter()
        .map(|(step, share)| (*step, share * 100.0))
        .collect();
    let memory = Chart::new("Memory held at most", "MiB")
        .with("planned", Style::Raw, &planned)
        .with("held so far", Style::Line, &steps(&held));
    let charts = [
        loss,
        answers,
        learning_rates(metrics),
        Chart::new("Throughput", "tokens/s").with_noisy("", &steps(&|step| step.tokens_per_sec)),
        Chart::new("Share of peak", "%").with_noisy("", &shares),
        Chart::new("Gradient norm before clipping", "")
            .with_noisy("", &steps(&|step| step.grad_norm)),
        memory,
    ];
    charts
        .into_iter()
        .filter(|chart| !chart.curves.is_empty())
        .collect()
}

/// The learning rates: the run's, or where groups of params have their own, each group's.
fn learning_rates(metrics: &RunMetrics) -> Chart {
    let chart = Chart::new("Learning rate", "");
    let points = |rate: &dyn Fn(&StepMetrics) -> Option<f64>| -> Vec<Point> {
        let steps = metrics.steps.iter();
        steps
            .map(|step| (step.step as f64, rate(step).unwrap_or(f64::NAN)))
            .collect()
    };
    let groups = metrics
        .steps
        .iter()
        .map(|step| step.group_learning_rates.len());
    match groups.max().unwrap_or(0) {
        0 => {
            let run = points(&|step| Some(step.learning_rate));
            chart.with("learning rate", Style::Line, &run)
        }
        groups => (0..groups).fold(chart, |chart, group| {
            let own = points(&|step| step.group_learning_rates.get(group).copied());
            chart.with(&format!("group {}", group + 1), Style::Line, &own)
        }),
    }
}
